"""What learns when and how fast: frozen backbones, the head alone first, rates by layer, averages, and resuming all."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from isosphere import load_run
from isosphere.errors import Incompatible, Interrupted, OtherRecipe
from isosphere.inference import ImageEmbedder
from isosphere.metrics.faces import mirror_averaged
from isosphere.recipes import override
from isosphere.train import loop
from isosphere.train.average import averaged, kept, update_average
from isosphere.train.measure import measure_run
from isosphere.train.waking import wake
from raised import raised
from tiny import tiny_recipe

CASES = {
    "AdamW by layers": {"optimizer": "AdamW", "optimizer.layer_decay": 0.5, "loss": "ProxyAnchor"},
    "frozen": {"optimizer.backbone_lr": 0, "loop.precision": "float64"},
    "head first": {"schedule.head_first": 0.5, "optimizer": "SGD", "optimizer.lr": 0.01},
    "average": {"loop.average": 0.9, "model.head_start": "pca"},
    "gem": {"model.pooling": "gem", "schedule.head_first": 0.25, "loop.average": 0.99, "optimizer": "AdamW"},
}


def checkpoint(folder) -> dict:
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_a_run_that_was_stopped_twice_ends_as_an_unbroken_one(changes, tmp_path, monkeypatch):
    recipe = tiny_recipe("rendered-sec", changes)
    loop.fit(recipe, tmp_path / "whole", "cpu")
    for stop in (3, 13):
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(loop, "_asked_to_stop", lambda run, caught, stop=stop: run.step == stop)
            loop.fit(recipe, tmp_path / "broken", "cpu", resume=True)
    loop.fit(recipe, tmp_path / "broken", "cpu", resume=True)
    whole, broken = (checkpoint(tmp_path / name) for name in ("whole", "broken"))
    assert equal(whole["model"], broken["model"]) and equal(whole["criterion"], broken["criterion"])
    assert (whole["average"] is None and broken["average"] is None) or equal(whole["average"], broken["average"])
    assert (tmp_path / "whole" / "metrics.jsonl").read_text() == (tmp_path / "broken" / "metrics.jsonl").read_text()


def courses(changes: dict) -> list[dict[str, torch.Tensor]]:
    """The weights before the first step and after each."""
    run = loop.prepare(tiny_recipe("rendered", changes), torch.device("cpu"))
    run.network.train()
    found = [{name: value.clone() for name, value in run.model.state_dict().items()}]
    for batch in loop.training_feed(run):
        loop.train_step(run, batch.images, batch.labels)
        run.step += 1
        found.append({name: value.clone() for name, value in run.model.state_dict().items()})
    return found


def changed(one: dict, other: dict) -> set[str]:
    return {name for name in one if not torch.equal(one[name], other[name])}


def test_the_backbone_rests_until_its_time_and_then_all_of_it_learns():
    found = courses({"schedule.head_first": 0.4, "loop.steps": 10})
    for step in range(10):
        parts = {name.split(".")[0] for name in changed(found[step], found[step + 1])}
        assert parts == ({"head"} if step < 4 else {"head", "backbone"}), step
    every = {name for name in found[0] if name.startswith("backbone")}
    assert every <= changed(found[4], found[-1])


def test_a_step_that_was_captured_at_rest_is_captured_again():
    run = loop.prepare(tiny_recipe("rendered", {"schedule.head_first": 0.5}), torch.device("cpu"))
    run.captured = SimpleNamespace(graph="of the head alone")
    for run.step, graph in ((9, "of the head alone"), (10, None)):
        wake(run)
        assert run.captured.graph == graph and (run.model.resting is None) == (graph is None)
    run.captured.graph = "of all"
    run.step = 11
    wake(run)
    assert run.captured.graph == "of all"


def test_a_frozen_backbone_keeps_weights_and_statistics_and_the_head_learns_on_the_features_of_evaluation():
    found = courses({"optimizer.backbone_lr": 0, "loop.steps": 5})
    assert {name.split(".")[0] for name in changed(found[0], found[-1])} == {"head"}
    run = loop.prepare(tiny_recipe("rendered", {"optimizer.backbone_lr": 0}), torch.device("cpu"))
    run.network.train()
    images = next(iter(loop.training_feed(run))).images
    learning = run.model.features(images)
    assert torch.equal(learning, run.model.eval().features(images)) and not learning.requires_grad


def test_layers_move_by_their_rates():
    """The first step of Adam is the rate itself, whatever the gradient."""
    changes = {"optimizer.layer_decay": 0.5, "optimizer.backbone_lr": 0.01, "optimizer.lr": 0.01, "loop.steps": 1}
    changes |= {"schedule": "Constant"}
    before, after = courses(changes | {"model.backbone": "test_resnet", "data.size": 32})
    weights = [name for name in before if name.startswith("backbone.layer") and name.endswith(("weight", "bias"))]
    assert {name[:15] for name in weights} == {f"backbone.layer{layer}" for layer in (1, 2, 3, 4)}
    for layer in (1, 2, 3, 4):
        moves = [(after[name] - before[name]).abs().max() for name in weights if name[14] == str(layer)]
        assert float(max(moves)) == pytest.approx(0.01 * 0.5 ** (4 - layer), rel=1e-3)


def test_what_cannot_learn_is_refused(tmp_path):
    own = {"model": "own_parts:Net", "model.head": "none"}
    for changes, field in (({"schedule.head_first": 0.5}, "schedule.head_first"),
                           ({"optimizer.backbone_lr": 0}, "optimizer.backbone_lr")):  # fmt: skip
        with raised(Incompatible, fields=("model.head", field)):
            loop.prepare(tiny_recipe("rendered", own | changes), torch.device("cpu"))
    with raised(Incompatible, fields=("model.pretrained", "model.weights")):
        changes = {"model.pretrained": True, "model.weights": "a.pth"}
        loop.prepare(tiny_recipe("rendered", changes), torch.device("cpu"))


# ---------------------------------------------------------------- the average of weights


def test_the_average_is_torchs_once_it_is_long():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    ours, theirs = averaged(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    theirs.update_parameters(model)  # its first is a copy
    for step in range(100, 110):
        assert kept(0.9, step) == 0.9
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter)
        model(torch.randn(8, 3))
        update_average(ours, model, 0.9, step)
        theirs.update_parameters(model)
    for name, value in theirs.module.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(ours.state_dict()[name], value)
    assert ours[1].num_batches_tracked == model[1].num_batches_tracked


def test_a_short_run_is_no_average_of_its_first_weights():
    """The first weights have hardly a part in it after some steps, whatever the decay."""
    part = 1.0
    for step in range(1, 51):
        part *= kept(0.999, step)
    assert part < 1e-6 and kept(0.999, 1) < 0.2


def test_the_average_is_measured_kept_and_used(tmp_path):
    result = loop.fit(tiny_recipe("rendered", {"loop.average": 0.95, "optimizer.lr": 0.01}), tmp_path / "run", "cpu")
    plain = loop.fit(tiny_recipe("rendered", {"optimizer.lr": 0.01}), tmp_path / "plain", "cpu")
    saved = checkpoint(tmp_path / "run")
    assert equal(saved["model"], checkpoint(tmp_path / "plain")["model"]), "training is the same"
    assert not equal(saved["model"], saved["average"])
    run = load_run(tmp_path / "run", "cpu")
    assert equal(run.model.state_dict(), saved["average"])
    assert measure_run(run)["last"] == pytest.approx(result["last"], abs=1e-6)
    assert result["last"]["norm_mean"] != plain["last"]["norm_mean"]
    for changes in ({"loop.average": 0.5}, {"loop.average": 0}):
        with pytest.raises(OtherRecipe):
            loop.fit(override(run.recipe, changes), tmp_path / "run", "cpu", resume=True)


def test_the_average_begins_where_the_head_does(tmp_path):
    """Before the first step it is the model, whose head starts as PCA."""
    changes = {"model.head_start": "pca", "model.dim": 32, "loop.steps": 1}
    for average in (0.0, 0.9):
        loop.fit(tiny_recipe("rendered", changes | {"loop.average": average}), tmp_path / str(average), "cpu")
    lines = [json.loads((tmp_path / str(a) / "metrics.jsonl").read_text().splitlines()[0]) for a in (0.0, 0.9)]
    assert lines[0] == lines[1] and lines[0]["step"] == 0


# ---------------------------------------------------------------- flips at test time


def test_flips_are_in_every_number_and_in_every_embedding(tmp_path):
    results = {
        flip: loop.fit(tiny_recipe("rendered", {"evaluation.flip": flip}), tmp_path / str(flip), "cpu")
        for flip in (True, False)
    }
    assert results[True]["untrained"] != results[False]["untrained"]
    run, plain = (load_run(tmp_path / str(flip), "cpu") for flip in (True, False))
    assert equal(run.model.state_dict(), plain.model.state_dict()), "training is the same"
    images = torch.randint(0, 256, (5, 3, 12, 12), dtype=torch.uint8)
    with torch.no_grad():
        assert torch.equal(run.embed(images), mirror_averaged(run.model, images))
        assert torch.equal(run.embed(images, features=True), mirror_averaged(run.model.features, images))
        assert torch.equal(plain.embed(images), plain.model(images))
    assert measure_run(run)["last"] == pytest.approx(results[True]["last"], abs=1e-6)
    assert results[True]["last"]["norm_mean"] != results[False]["last"]["norm_mean"]


def test_features_and_embeddings_by_one_pass_are_flipped_each_for_itself():
    run = loop.prepare(tiny_recipe("rendered", {}), torch.device("cpu"))
    embedder = ImageEmbedder(run.model, run.device, flip=True)
    images = run.task.images.subset(range(7))
    both = embedder.both(images, None)
    torch.testing.assert_close(both[:, :-16], embedder.features(images, None))
    torch.testing.assert_close(both[:, -16:], embedder(images, None))
    assert torch.equal(embedder.mirrored(images, None), embedder(images, None)), "faces are not flipped twice"

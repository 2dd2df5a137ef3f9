"""Table 5 by one command: tuned on training images alone, stopped and gone on with, each experiment in its file."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import command
from isosphere.data import cifar
from isosphere.errors import Diverged, NoSettings, Option
from isosphere.paper import reproduce, tables
from isosphere.paper.tables import Asked, cells, trials
from isosphere.recipes import options, override
from isosphere.train import contrastive, loop, tuning
from isosphere.train.build import build_task
from small_cifar import write_cifar10

TRAIN, TEST = 100, 20
TINY = {
    "model.backbone": "small_cnn", "model.dim": "8", "batches.size": "30", "optimizer.lr": "0.01", "loop.steps": "1",
    "loop.workers": "0", "loop.log_every": "1", "loop.save_every": "0", "loop.save_embeddings": "false",
}  # fmt: skip
MEASURED = {"knn", "probe_top1", "probe_top5", "probe_best_top1", "norm_mean", "norm_variance"}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The original has 60,000 images, here it has 120; tables are as wide as they like."""
    monkeypatch.setattr(cifar, "COUNTS", {"train": TRAIN, "test": TEST})
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory) -> Path:
    """CIFAR-10's python files with 120 images of noise, darker or brighter by class."""
    root = tmp_path_factory.mktemp("cifar")

    def draw(labels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return generator.integers(0, 120, (len(labels), 3, 32, 32)) + 10 * labels[:, None, None, None]

    write_cifar10(root, TRAIN, TEST, draw)
    return root


def pictures(images) -> set[bytes]:
    return {pixels.numpy().tobytes() for pixels in images.pixels}


def test_methods_are_tuned_on_training_images_and_measured_on_test_images(cifar10, tmp_path, monkeypatch):
    trained, real = [], loop.train
    monkeypatch.setattr(tuning, "train", lambda run, *rest: (trained.append(run), real(run, *rest))[1])
    changes, file = TINY | {"data.root": str(cifar10)}, tmp_path / "results" / "simclr_cifar10.json"
    ((cell, methods),) = cells("table5", Asked(methods=("none", "l2reg", "sec"))).items()
    methods = {method: override(recipe, changes) for method, recipe in methods.items()}
    chosen = {cell: methods}
    records = reproduce.reproduce(chosen, (0,), True, reproduce.Results(file), tmp_path / "runs", "cpu")
    held = json.loads(file.read_text())
    assert len(held["trials"]) == 20 and len(held["runs"]) == len(methods) == 3 and len(trained) == 23
    assert [trial["method"] for trial in held["trials"]] == ["none"] * 10 + ["sec"] * 10

    # Nothing is chosen on test images: a trial trains on 90 training images and is measured on the other 10.
    everything = build_task(methods["none"].data, torch.device("cpu"))
    train, test = pictures(everything.images), pictures(everything.evaluation.images)
    assert len(train) == TRAIN and len(test) == TEST and not train & test
    for run in trained[:20]:
        seen, measured = pictures(run.task.images), pictures(run.task.evaluation.images)
        assert len(seen) == 90 and seen | measured == train and not seen & measured
        assert pictures(run.task.evaluation.train) == seen, "the probe learns from what was trained on"
        assert run.recipe.seed == 100
    for run in trained[20:]:
        assert run.recipe.validation.held_out == 0 and run.recipe.seed == 0
        assert pictures(run.task.images) == train and pictures(run.task.evaluation.images) == test

    # The best trial of a method by the probe's last top-1 is what its final run has; L2-reg takes SEC's rate and decay.
    finals = {run["method"]: run["recipe"] for run in held["runs"]}
    for method in ("none", "sec"):
        best = max((t for t in held["trials"] if t["method"] == method), key=lambda trial: trial["last"]["probe_top1"])
        assert finals[method]["optimizer"] == best["recipe"]["optimizer"]
        assert finals[method]["constraint"] == best["recipe"]["constraint"]
    assert len({trial["last"]["probe_top1"] for trial in held["trials"]}) > 1, "there is something to choose by"
    assert finals["l2reg"]["optimizer"] == finals["sec"]["optimizer"]
    assert finals["l2reg"]["constraint"]["eta"] == methods["l2reg"].constraint.eta

    # Records hold norms over training, k-NN's course and the probe, and no path.
    assert {record["tested"] for record in held["trials"]} == {"held-out training images, not trained on"}
    assert {record["tested"] for record in held["runs"]} == {"test images, not trained on"}
    for record in held["trials"] + held["runs"]:
        assert MEASURED <= record["last"].keys()
        assert [step for step, _, mean, variance in record["norms"] if mean > 0 and variance > 0] == [1, 2, 3]
        assert [test["step"] for test in record["tests"] if 0 <= test["knn"] <= 1] == [0, 3]
    assert str(tmp_path) not in file.read_text() and str(cifar10) not in file.read_text()

    again = reproduce.reproduce(chosen, (0,), True, reproduce.Results(file), tmp_path / "elsewhere", "cpu")
    assert len(trained) == 23 and again == records


def test_the_two_best_of_an_method_are_tried_again_at_full_length(cifar10, tmp_path, monkeypatch):
    """What is best after a short trial need not be after a long one: the long one decides, for other networks, too.

    A trial counts by the rate of the probe that suits it.
    """
    monkeypatch.setitem(tables.TUNINGS, "cifar10", replace(tables.UNSEEN_IMAGES, steps=1, whole=2))
    ((cell, methods),) = cells("table5", Asked(methods=("none",))).items()
    recipe = override(methods["none"], TINY | {"data.root": str(cifar10), "loop.steps": "2", "loop.save_every": "1"})
    short = trials("none", recipe)
    made, real = [], tuning.Runner.run

    def scored(runner, recipe, folder):
        """The sixth is the best of the short ones, the third the next; the long ones have it the other way round."""
        made.append(recipe)
        number = [trial.optimizer for trial in short].index(recipe.optimizer)
        score = {5: 0.9, 2: 0.8}.get(number, 0.1) if recipe.loop.steps == 1 else {5: 0.3, 2: 0.4}[number]
        return real(runner, recipe, folder) | {"last": {"probe_top1": 0.1, "probe_top1@2": score}}

    monkeypatch.setattr(tuning.Runner, "run", scored)
    file = tmp_path / "results" / "simclr_cifar10.json"
    chosen, held = {cell: {"none": recipe}}, reproduce.Results(file)
    (final,) = reproduce.reproduce(chosen, (0,), True, held, tmp_path / "runs", "cpu")
    lengths = [(trial.loop.steps, trial.validation.held_out, trial.seed) for trial in made]
    assert lengths == [(1, 0.1, 100)] * 10 + [(2, 0.1, 100)] * 2 + [(2, 0, 0)]
    assert [trial.loop.save_every for trial in made] == [0] * 10 + [1] * 3, "what is long can be taken up again"
    assert [trial.optimizer for trial in made[10:12]] == [short[5].optimizer, short[2].optimizer]
    assert options.from_dict(type(recipe), final["recipe"]).optimizer == short[2].optimizer
    assert [len(record["norms"]) for record in held.records["trials"]] == [3] * 10 + [6] * 2, "they were trained"

    again = reproduce.reproduce(chosen, (0,), True, reproduce.Results(file), tmp_path / "elsewhere", "cpu")
    assert len(made) == 13 and again == [final]
    other = {cell: {"none": override(recipe, {"model.dim": "4"})}}
    place = reproduce.Results(tmp_path / "other.json")
    reproduce.reproduce(other, (0,), True, place, tmp_path / "other", "cpu", reproduce.Results(file))
    assert len(made) == 14 and made[-1].optimizer == short[2].optimizer and made[-1].model.dim == 4


def test_the_same_command_goes_on_after_sigterm(cifar10, tmp_path, capsys, monkeypatch):
    """Stopped in the second of three steps of a trial, and again in a final run: every number as if it was not."""
    steps, real = [], loop.train_step

    def step(run, *batch):
        steps.append(run)
        if len(steps) in stops:
            signal.raise_signal(signal.SIGTERM)
        return real(run, *batch)

    monkeypatch.setattr(loop, "train_step", step)
    fields = [word for key, value in (TINY | {"data.root": str(cifar10)}).items() for word in (f"--{key}", value)]
    held = {}
    for name, stops in (("whole", ()), ("broken", (3 * 2 + 2, 3 * 10 + 2))):
        steps.clear()
        given = [
            "table5", "--dataset", "cifar10", "--methods", "none", "--device", "cpu", *fields,
            "--results", tmp_path / name, "--out", tmp_path / name / "runs",
        ]  # fmt: skip
        for _ in stops:
            code, _, err = command(capsys, "reproduce", *given)
            assert code == 128 + signal.SIGTERM
            assert "run the same command to go on" in " ".join(err.split())
        code, _, err = command(capsys, "reproduce", *given)
        assert code == 0 and len(steps) == 3 * 11, err
        (file,) = (tmp_path / name).glob("*.json")
        held[name] = json.loads(file.read_text())
    for kind, count in (("trials", 10), ("runs", 1)):
        found, wanted = held["broken"][kind], held["whole"][kind]
        assert len(found) == len(wanted) == count
        for one, other in zip(found, wanted, strict=True):
            assert all(one[part] == other[part] for part in ("recipe", "last", "oracle", "norms", "tests"))


@pytest.mark.parametrize("where", ["last step", "last evaluation", "divergence"])
def test_a_signal_at_the_end_of_a_run_stops_the_table(where, cifar10, tmp_path, capsys, monkeypatch):
    """What has come to its end is kept, and the same command goes on with the next."""
    steps, step, probe = [], loop.train_step, contrastive.linear_probe

    def train_step(run, *batch):
        steps.append(run)
        if len(steps) == 3 and where != "last evaluation":
            signal.raise_signal(signal.SIGTERM)
            if where == "divergence":
                raise Diverged(1, "why", {}, (Option("optimizer.lr"),))
        return step(run, *batch)

    def linear_probe(*given, **settings):
        if len(steps) == 3 and where == "last evaluation":
            signal.raise_signal(signal.SIGTERM)
        return probe(*given, **settings)

    monkeypatch.setattr(loop, "train_step", train_step)
    monkeypatch.setattr(contrastive, "linear_probe", linear_probe)
    fields = [word for key, value in (TINY | {"data.root": str(cifar10)}).items() for word in (f"--{key}", value)]
    given = ["table5", "--no-tune", "--methods", "none", "sec", "--device", "cpu", *fields,
             "--results", tmp_path / "results", "--out", tmp_path / "runs"]  # fmt: skip
    code, _, err = command(capsys, "reproduce", *given)
    assert code == 128 + signal.SIGTERM and len(steps) == 3, err
    assert "run the same command to go on" in " ".join(err.split())
    (file,) = (tmp_path / "results").glob("*.json")
    (kept,) = json.loads(file.read_text())["runs"]
    assert kept["method"] == "none" and ("diverged" in kept) == (where == "divergence")
    code, _, err = command(capsys, "reproduce", *given)
    assert code == 0 and len(steps) == 6 and "1 runs made now, 1 taken from" in " ".join(err.split()), err
    assert json.loads(file.read_text())["runs"][0] == kept


def test_tuning_and_backbone_stand_in_the_name_of_the_results(tmp_path, capsys, monkeypatch):
    asked = []

    def noted(chosen, seeds, tune, results, *rest):
        asked.append((chosen, tune, results.path.stem))
        return []

    monkeypatch.setattr(reproduce, "reproduce", noted)
    smaller = ("--model.backbone", "resnet18_cifar")
    for words in (("table5",), ("table5", *smaller), ("table5", "--no-tune", *smaller), ("table5", "--paper"),
                  ("table5", "--dataset", "cifar100", "--epochs", "200"), ("table4", "--tune")):  # fmt: skip
        code, _, err = command(capsys, "reproduce", *words, "--results", tmp_path)
        assert code == 0, err
    assert [(tune, name) for _, tune, name in asked] == [
        (True, "simclr_cifar10"),
        (True, "simclr_cifar10_resnet18"),
        (False, "simclr_cifar10_untuned_resnet18"),
        (False, "simclr_cifar10_paper"),
        (True, "simclr_cifar100"),
        (False, "faces_casia"),
    ]
    backbones = [{recipe.model.backbone for recipe in chosen["simclr-cifar10"].values()} for chosen, *_ in asked[:2]]
    assert backbones == [{"resnet50_cifar"}, {"resnet18_cifar"}]


def final(cell, method, recipe):
    """A run in a file of results."""
    return {"cell": cell, "method": method, "recipe": options.to_dict(recipe), "last": {}}


def test_what_another_process_added_meanwhile_is_kept(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    file = tmp_path / "results" / "t.json"
    one, other = reproduce.Results(file), reproduce.Results(file)
    for place, (results, seed) in enumerate(((one, 0), (other, 1), (one, 2))):
        recipe = options.to_dict(override(cells("table5", Asked())["simclr-cifar10"]["none"], {"seed": str(seed)}))
        results.add("runs", tmp_path / "run", {"recipe": recipe, "last": {}}, cell="c", method="none")
        assert len(json.loads(file.read_text())["runs"]) == place + 1
    assert [path.name for path in file.parent.iterdir()] == ["t.json"]


def test_a_run_whose_norms_overflowed_is_kept(tmp_path):
    lines = [{"step": 1, "loss": 5.6, "norm_mean": 2.0, "norm_variance": 0.5}]
    lines += [{"step": 2, "loss": 5.5, "norm_mean": 5e18}]  # what is not finite is left out of the journal
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line | {"kind": "train"}) + "\n" for line in lines))
    recipe = options.to_dict(cells("table5", Asked())["simclr-cifar10"]["none"])
    results = reproduce.Results(tmp_path / "results" / "t.json")
    record = results.add("runs", tmp_path, {"recipe": recipe, "last": {}}, cell="c", method="none")
    assert record["norms"] == [[1, 5.6, 2.0, 0.5]]


def test_settings_are_taken_from_the_runs_of_another_network(cifar10, tmp_path, capsys, monkeypatch):
    trained, real = [], loop.train
    monkeypatch.setattr(tuning, "train", lambda run, *rest: (trained.append(run), real(run, *rest))[1])
    ((cell, methods),) = cells("table5", Asked(methods=("none", "l2reg", "sec"))).items()
    wide = {method: override(recipe, TINY | {"model.backbone": "resnet18_cifar"}) for method, recipe in methods.items()}
    chosen = {"none": trials("none", wide["none"])[4], "sec": trials("sec", wide["sec"])[1]}
    held = [final(cell, method, recipe) for method, recipe in chosen.items()]
    hundred = json.loads(json.dumps(held).replace('"name": "cifar10"', '"name": "cifar100"'))
    other_data = json.loads(json.dumps(hundred).replace('"lr": ', '"lr": 1'))
    source = tmp_path / "simclr_cifar10_resnet18.json"
    source.write_text(json.dumps({"trials": [], "runs": other_data + held}))
    changes = {key: value for key, value in TINY.items() if key != "optimizer.lr"} | {"data.root": str(cifar10)}
    fields = [word for key, value in changes.items() for word in (f"--{key}", value)]
    given = ["table5", "--methods", "none", "l2reg", "sec", "--device", "cpu", "--results", tmp_path / "found",
             "--out", tmp_path / "runs", *fields]  # fmt: skip
    code, _, err = command(capsys, "reproduce", *given, "--tuned-by", source)
    assert code == 0, err

    (file,) = (tmp_path / "found").glob("*.json")
    found = json.loads(file.read_text())
    assert found["trials"] == [] and len(trained) == len(found["runs"]) == 3
    finals = {run["method"]: run["recipe"] for run in found["runs"]}
    for method, recipe in chosen.items():
        assert finals[method]["optimizer"] == options.to_dict(recipe)["optimizer"]
        assert finals[method]["constraint"] == options.to_dict(recipe)["constraint"]
    assert finals["l2reg"]["optimizer"] == finals["sec"]["optimizer"]
    assert finals["l2reg"]["constraint"]["eta"] == methods["l2reg"].constraint.eta
    assert all(recipe["model"]["backbone"] == "small_cnn" and recipe["seed"] == 0 for recipe in finals.values())

    # Longer training is another cell with the same settings.
    code, _, err = command(capsys, "reproduce", *given, "--epochs", "200", "--loop.steps", "4", "--tuned-by", source)
    assert code == 0 and len(trained) == 6, err
    assert [run.recipe.optimizer for run in trained[3:]] == [run.recipe.optimizer for run in trained[:3]]

    # Another data set's serve where this one has none.
    source.write_text(json.dumps({"trials": [], "runs": hundred}))
    elsewhere = ["--results", tmp_path / "again", "--out", tmp_path / "others"]
    code, _, err = command(capsys, "reproduce", *given, *elsewhere, "--tuned-by", source)
    assert code == 0 and len(trained) == 9, err
    assert [run.recipe for run in trained[6:]] == [run.recipe for run in trained[:3]]

    # Nobody takes them for runs that were tuned themselves: neither here nor in the file.
    assert {run["tuned_by"] for run in found["runs"]} == {source.stem}
    assert found["experiment"]["tuned_by"] == source.stem
    short = [*given[:9], "--model.backbone", "small_cnn"]
    monkeypatch.setattr(reproduce, "reproduce", lambda *given: asked.append(given[3].path.stem) or [])
    asked = []
    for words in ((), ("--tuned-by", source)):
        assert command(capsys, "reproduce", *short, *words)[0] == 0
    assert asked == [f"simclr_cifar10_small_cnn{mark}" for mark in ("", "_tuned_by_resnet18")]
    assert command(capsys, "reproduce", *given, "--tuned-by", source)[0] == 0  # too many changes for a name
    assert asked[-1] == file.stem


def test_only_data_that_is_tuned_alike_lends_its_settings(tmp_path):
    """SOP's rates and weight decay are far from CUB's; Cars196 has the same trials as CUB."""
    methods = cells("table3", Asked(dataset="cub200", losses=("ms",), methods=("none", "sec")))["cub200-ms"]
    chosen = {method: trials(method, recipe)[1] for method, recipe in methods.items()}
    held = [final("cub200-ms", method, recipe) for method, recipe in chosen.items()]
    source = tmp_path / "retrieval_cub200.json"
    source.write_text(json.dumps({"trials": [], "runs": held}))
    found = reproduce.Results(source)

    def tuned(dataset: str, method: str):
        ((cell, others),) = cells("table3", Asked(dataset=dataset, losses=("ms",), methods=(method,))).items()
        return reproduce._tuned(cell, method, others, None, None, None, found)

    for method, recipe in chosen.items():
        one = tuned("cars196", method)
        assert (one.data.name, one.optimizer, one.constraint) == ("cars196", recipe.optimizer, recipe.constraint)
    ema = tuned("cars196", "sec-ema")  # has no trials: SEC's rate, its own strength, and SEC need not be run
    assert ema.optimizer == chosen["sec"].optimizer and ema.constraint != chosen["sec"].constraint
    with pytest.raises(NoSettings) as caught:
        tuned("sop", "none")
    assert (caught.value.path, caught.value.method, caught.value.cell) == (source, "none", "sop-ms")


def test_what_cannot_tune_is_named(tmp_path, capsys):
    ((cell, methods),) = cells("table5", Asked(methods=("none", "sec"))).items()
    held = [final(cell, method, recipe) for method, recipe in methods.items()]
    faster = final(cell, "sec", override(methods["sec"], {"optimizer.lr": "3"}))
    source, given = tmp_path / "other.json", ["table5", "--methods", "none", "sec", "--results", tmp_path / "found"]
    given += ["--device", "cpu", "--tuned-by"]
    hundred = json.loads(json.dumps(held).replace('"name": "cifar10"', '"name": "cifar100"'))
    for kept, method in (
        (held[:1], "sec"),
        (held[1:], "none"),
        (held[:1] + hundred[1:], "sec"),  # not half of this data and half of another
        ([*held, faster], "sec"),
    ):
        source.write_text(json.dumps({"trials": [], "runs": kept}))
        with pytest.raises(NoSettings) as caught:
            for method in methods:
                reproduce._tuned(cell, method, methods, None, None, None, reproduce.Results(source))
        assert (caught.value.path, caught.value.method) == (source, method)
        code, _, err = command(capsys, "reproduce", *given, source)
        assert code == 2 and "other.json" in err and len(err.splitlines()) == 1
    source.write_text(json.dumps({"trials": [], "runs": held}))
    for field, value in (("--optimizer.lr", "3"), ("--optimizer", "Adam"), ("--constraint.eta", "1")):
        code, _, err = command(capsys, "reproduce", *given, source, field, value)
        assert code == 2 and "--tuned-by" in err and f" {field};" in err
    code, _, err = command(capsys, "reproduce", *given, source, "--loss.temperature", "0.2")
    assert code == 2 and "other.json" in err
    assert command(capsys, "reproduce", *given, tmp_path)[0] == 2
    code, _, err = command(capsys, "reproduce", *given, tmp_path / "nowhere.json")
    assert code == 2 and "nowhere.json" in err
    code, _, err = command(capsys, "reproduce", *given, source, "--losses", "ms")
    assert code == 2 and "--losses" in err
    for words in (["--no-tune"], ["--paper"]):
        code, _, err = command(capsys, "reproduce", *given, source, *words)
        assert code == 2 and "--tuned-by" in err
    assert not (tmp_path / "found").exists()

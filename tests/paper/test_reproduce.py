"""A whole table in one process: trials never see test classes, nothing is run twice, and a broken table goes on."""

import json
import signal

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from commands import isosphere
from isosphere.errors import BadArgument, Diverged, Incompatible, NotResults, Option, OtherRecipe, Stopped
from isosphere.models.backbones import build_backbone
from isosphere.models.frozen import FrozenBatchNorm
from isosphere.paper import ALL, find, reproduce
from isosphere.paper.tables import Asked, cells, trials
from isosphere.recipes import options, override
from isosphere.recipes.identity import alike, digest
from isosphere.train import evaluation, loop, tuning
from isosphere.train.build import build_task
from tiny import tiny_recipe

TINY = {
    "data.allow_missing": "true", "data.size": "16", "data.shorter": "20", "model.backbone": "small_cnn",
    "model.freeze_bn": "false", "model.dim": "8", "batches.size": "30", "loop.steps": "2", "loop.workers": "0",
    "loop.save_every": "0", "loop.log_every": "1", "loop.save_embeddings": "false",
}  # fmt: skip


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """A miniature CUB-200-2011: 200 class folders of two small images."""
    root = tmp_path_factory.mktemp("cub")
    generator = np.random.default_rng(0)
    for number in range(200):
        folder = root / "images" / f"{number + 1:03d}.bird"
        folder.mkdir(parents=True)
        for index in range(2):
            Image.fromarray(generator.integers(0, 255, (20, 24, 3), dtype=np.uint8)).save(folder / f"{index}.png")
    return root


def few_cells(benchmark, losses=("ms",), methods=("none", "sec", "l2reg")):
    changes = TINY | {"data.root": str(benchmark), "data.pack": str(benchmark / "packed")}
    asked = Asked("cub200", losses, methods)
    return {
        cell: {method: override(recipe, changes) for method, recipe in its.items()}
        for cell, its in cells("table3", asked).items()
    }


def test_a_table_is_tuned_run_and_not_run_again(benchmark, tmp_path, monkeypatch, capsys):
    trained = []
    real = loop.train
    monkeypatch.setattr(tuning, "train", lambda run, *rest: (trained.append(run), real(run, *rest))[1])
    file = tmp_path / "results" / "retrieval_cub200.json"
    chosen = few_cells(benchmark)
    records = reproduce.reproduce(chosen, (0, 1), True, reproduce.Results(file), tmp_path / "runs", "cpu")
    held = json.loads(file.read_text())
    assert len(held["trials"]) == 12 and len(held["runs"]) == 6 and len(trained) == 18
    made = [(r["seed"], r["method"]) for r in records]
    assert made == [(seed, method) for seed in (0, 1) for method in ("none", "sec", "l2reg")]

    # Nothing is chosen on test classes: a trial trains on 80 training classes and is measured on the other 20.
    everything = build_task(chosen["cub200-ms"]["none"].data, torch.device("cpu"))
    for run in trained[:12]:
        assert run.task.images.classes == everything.images.classes[:80]
        assert run.task.evaluation.images.classes == everything.images.classes[80:]
        assert not set(run.task.evaluation.images.classes) & set(everything.evaluation.images.classes)
        assert run.recipe.seed not in (0, 1)
    for run in trained[12:]:
        assert run.task.evaluation.images.classes == everything.evaluation.images.classes

    # The best trial of a method by MAP@R is what its final runs have; L2-reg takes SEC's learning rate.
    for method in ("none", "sec"):
        best = max((t for t in held["trials"] if t["method"] == method), key=lambda trial: trial["last"]["map@r"])
        for run in (r for r in held["runs"] if r["method"] == method):
            assert run["recipe"]["optimizer"] == best["recipe"]["optimizer"]
            assert run["recipe"]["constraint"] == best["recipe"]["constraint"]
    finals = [(run["method"], run["recipe"]["optimizer"]["lr"]) for run in held["runs"]]
    rates = {method: [lr for its, lr in finals if its == method] for method in ("sec", "l2reg")}
    assert rates["sec"] == rates["l2reg"]

    # Records can be shared: no path, no command; and they carry what figures need.
    assert str(tmp_path) not in file.read_text() and str(benchmark) not in file.read_text()
    assert [len(r["norms"]) for r in held["runs"]] == [2] * 6 and "command" not in held["runs"][0]
    assert [test["step"] for test in held["runs"][0]["tests"]] == [0, 2]

    # What is there is not run again, wherever the data are now; a new seed is.
    again = reproduce.reproduce(chosen, (0, 1), True, reproduce.Results(file), tmp_path / "elsewhere", "cpu")
    assert len(trained) == 18 and again == records
    assert f"0 runs made now, 6 taken from {file}" in capsys.readouterr().err
    reproduce.reproduce(chosen, (2,), True, reproduce.Results(file), tmp_path / "runs", "cpu")
    assert len(trained) == 21


def test_norms_over_training_are_those_of_the_embeddings(benchmark, tmp_path, monkeypatch):
    seen, real = [], loop.train

    def watched(run, *rest):
        run.network.register_forward_hook(lambda module, _, out: seen.append(out.detach()) if module.training else None)
        return real(run, *rest)

    monkeypatch.setattr(tuning, "train", watched)
    chosen, results = few_cells(benchmark, methods=("none",)), reproduce.Results(tmp_path / "r.json")
    (record,) = reproduce.reproduce(chosen, (0,), False, results, tmp_path / "runs", "cpu")
    assert len(seen) == 2 and [len(line) for line in record["norms"]] == [4, 4]
    for step, (line, embeddings) in enumerate(zip(record["norms"], seen, strict=True), 1):
        lengths = [sum(float(x) ** 2 for x in row) ** 0.5 for row in embeddings]
        mean = sum(lengths) / len(lengths)
        variance = sum((length - mean) ** 2 for length in lengths) / len(lengths)
        assert line[0] == step and line[2:] == pytest.approx([mean, variance], rel=1e-4)
        assert abs(mean - variance) > 0.1, "one cannot be taken for the other"


def test_the_command_runs_a_table_and_prints_what_it_holds(benchmark, tmp_path):
    words = "reproduce table3 --dataset cub200 --losses ms --methods none sec --seeds 0 1 --device cpu".split()
    words += [word for field, value in TINY.items() for word in (f"--{field}", value)]
    words += ["--data.root", benchmark, "--results", "results", "--out", "runs"]
    done = isosphere(*words, folder=tmp_path)
    (file,) = (tmp_path / "results").iterdir()  # named after the table and what was changed of it
    held = json.loads(file.read_text())
    assert (len(held["trials"]), len(held["runs"])) == (12, 4) and file.name.startswith("retrieval_cub200_")
    for method in ("none", "sec"):
        mean = sum(100 * r["last"]["recall@1"] for r in held["runs"] if r["method"] == method) / 2
        assert any(line.split()[:2] == [method, "2"] and f"{mean:.1f} ±" in line for line in done.stdout.splitlines())
    assert "sec - none" in done.stdout
    again = isosphere(*words, folder=tmp_path)
    assert again.stdout == done.stdout and "0 runs made now, 4 taken from" in again.stderr


def test_a_table_takes_the_settings_of_another_networks_runs(benchmark, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning.Runner, "run", lambda *given: pytest.fail("all that is asked for is there"))
    chosen, results = few_cells(benchmark), reproduce.Results(tmp_path / "here.json")
    source, best = reproduce.Results(tmp_path / "there.json"), {}
    for method in ("none", "sec"):
        best[method] = override(trials(method, chosen["cub200-ms"][method])[3], {"model.dim": "16"})
        source.records["runs"].append({"cell": "cub200-ms", "method": method, "recipe": options.to_dict(best[method])})
    asked = []
    monkeypatch.setattr(results, "find", lambda kind, recipe: asked.append((kind, recipe)) or {"last": {}})
    reproduce.reproduce(chosen, (0,), True, results, tmp_path / "runs", "cpu", source)
    assert [kind for kind, _ in asked] == ["runs"] * 3
    none, sec, l2reg = (recipe for _, recipe in asked)
    for final, wanted in ((none, best["none"]), (sec, best["sec"])):
        assert (final.optimizer, final.constraint) == (wanted.optimizer, wanted.constraint) and final.model.dim == 8
    rates = [(recipe.optimizer.lr, recipe.optimizer.backbone_lr) for recipe in (sec, l2reg)]
    assert rates[0] == rates[1] and l2reg.constraint == chosen["cub200-ms"]["l2reg"].constraint


def test_paired_seeds_share_first_weights_and_batches(benchmark):
    runs = [
        loop.prepare(recipe, torch.device("cpu")) for recipe in few_cells(benchmark)["cub200-ms"].values()
    ]
    for run in runs[1:]:
        for name, value in runs[0].model.state_dict().items():
            assert torch.equal(value, run.model.state_dict()[name])
        for step in range(2):
            assert torch.equal(runs[0].batches.indices(step), run.batches.indices(step))


def test_other_recipes_are_never_taken_for_this_one(benchmark, tmp_path):
    file, chosen = tmp_path / "r.json", few_cells(benchmark, methods=("none",))
    reproduce.reproduce(chosen, (0,), False, reproduce.Results(file), tmp_path / "runs", "cpu")
    wider = {cell: {m: override(r, {"model.dim": "16"}) for m, r in its.items()} for cell, its in chosen.items()}
    (record,) = reproduce.reproduce(wider, (0,), False, reproduce.Results(file), tmp_path / "runs", "cpu")
    assert record["recipe"]["model"]["dim"] == 16
    # A run of the same cell, method and seed that was set differently gives way: it is not another seed.
    assert [run["recipe"]["model"]["dim"] for run in json.loads(file.read_text())["runs"]] == [16]
    runner, folder = tuning.Runner("cpu"), next((tmp_path / "runs").iterdir())
    held = json.loads((folder / "result.json").read_text())["recipe"]["model"]["dim"]
    other = wider if held == 8 else chosen
    with pytest.raises(OtherRecipe) as caught:
        runner.run(other["cub200-ms"]["none"], folder)
    assert (caught.value.path, set(caught.value.changes)) == (folder, {"model.dim"})


@pytest.mark.parametrize("field, one, same, other", [
    ("data.exclude", "lists/cfp.txt", "/elsewhere/cfp.txt", "lists/lfw.txt"),
    ("data.probes", "frontal.csv", "cfp/frontal.csv", ""),
    ("data.distractors", "a/singles.csv,images.csv", "b/singles.csv,c/images.csv", "singles.csv"),
])  # fmt: skip
def test_lists_of_faces_count_by_their_names(field, one, same, other):
    made = [find("lfw-arcface", {field: value}) for value in (one, same, other)]
    assert alike(made[0], made[1]) and not alike(made[0], made[2])
    assert digest(made[0]) == digest(made[1]) != digest(made[2])


def test_what_a_killed_run_left_is_not_counted(benchmark, tmp_path):
    recipe = few_cells(benchmark, methods=("none",))["cub200-ms"]["none"]
    folder = tmp_path / "runs" / f"cub200-ms-none-{digest(recipe)}-seed0"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 0, "kind": "test", "recall@1": 1.0}\n{"step": 1, "ki')
    cells = {"cub200-ms": {"none": recipe}}
    results = reproduce.Results(tmp_path / "r.json")
    (record,) = reproduce.reproduce(cells, (0,), False, results, tmp_path / "runs", "cpu")
    assert [test["step"] for test in record["tests"]] == [0, 2] and len(record["norms"]) == 2
    assert record["oracle"]["recall@1"] < 1


@pytest.mark.parametrize(
    ("changes", "seeds", "name", "value"),
    [({}, (0, 100), Option("seeds"), 100), ({"validation.held_out": "20"}, (0,), Option("validation.held_out"), 20)],
)
def test_the_protocol_is_guarded(benchmark, tmp_path, changes, seeds, name, value):
    chosen = few_cells(benchmark, methods=("none",))
    chosen = {cell: {method: override(r, changes) for method, r in its.items()} for cell, its in chosen.items()}
    with pytest.raises(BadArgument) as caught:
        reproduce.reproduce(chosen, seeds, True, reproduce.Results(tmp_path / "r.json"), tmp_path / "runs", "cpu")
    assert (caught.value.name, caught.value.value) == (name, value)


def test_a_method_without_trials_needs_that_whose_rate_it_takes(benchmark, tmp_path):
    only = few_cells(benchmark, methods=("l2reg",))
    with pytest.raises(Incompatible) as caught:
        reproduce.reproduce(only, (0,), True, reproduce.Results(tmp_path / "r.json"), tmp_path / "runs", "cpu")
    assert caught.value.remedies[0] == Option("methods", "l2reg sec")


@pytest.mark.parametrize("backbone", ["resnet50_v1", "bn_inception"])
def test_a_step_through_the_real_backbones_with_frozen_batch_norm(benchmark, tmp_path, backbone):
    save_file(build_backbone(backbone)[0].state_dict(), tmp_path / "weights.safetensors")
    changes = TINY | {
        "data.root": str(benchmark), "data.size": "64", "data.shorter": "64", "model.backbone": backbone,
        "model.freeze_bn": "true", "model.weights": str(tmp_path / "weights.safetensors"), "batches.size": "10",
    }  # fmt: skip
    run = loop.prepare(override(ALL["cub200-ms-sec"], changes), torch.device("cpu"))
    run.network.train()
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    batch = next(iter(loop.training_feed(run)))
    assert loop.train_step(run, batch.images, batch.labels)["loss"].isfinite()
    after, frozen = run.model.state_dict(), 0
    for path, module in run.model.backbone.named_modules():
        if isinstance(module, FrozenBatchNorm):
            names = [f"backbone.{path}.{name}" for name in module.state_dict()]
            assert all(torch.equal(before[name], after[name]) for name in names), path
            frozen += 1
        elif isinstance(module, torch.nn.Conv2d):
            assert not torch.equal(before[f"backbone.{path}.weight"], after[f"backbone.{path}.weight"]), path
    assert frozen > 50


def test_a_broken_table_goes_on_with_nothing_lost(benchmark, tmp_path, monkeypatch):
    file, chosen = tmp_path / "r.json", few_cells(benchmark, methods=("none", "sec"))
    calls = []

    def breaks(run, *rest):
        calls.append(run)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return loop.train(run, *rest)

    monkeypatch.setattr(tuning, "train", breaks)
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce(chosen, (0,), False, reproduce.Results(file), tmp_path / "runs", "cpu")
    assert len(json.loads(file.read_text())["runs"]) == 1
    records = reproduce.reproduce(chosen, (0,), False, reproduce.Results(file), tmp_path / "runs", "cpu")
    assert len(calls) == 3 and len(records) == 2


def test_a_signal_at_the_end_of_a_run_stops_before_the_next(tmp_path, monkeypatch):
    taken = evaluation.evaluate

    def take(evaluation, embedder, final, seed):
        if final:
            signal.raise_signal(signal.SIGTERM)
        return taken(evaluation, embedder, final, seed)

    monkeypatch.setattr(evaluation, "evaluate", take)
    recipes = {tmp_path / str(seed): tiny_recipe("rendered-sec", {"seed": seed}) for seed in range(2)}
    with pytest.raises(Stopped) as caught:
        tuning.run_many(recipes, "cpu")
    assert (caught.value.folder, caught.value.signal) == (tmp_path / "1", signal.SIGTERM)
    assert [path.name for path in tmp_path.iterdir()] == ["0"] and (tmp_path / "0" / "result.json").is_file()


def test_a_diverged_run_is_recorded_and_the_table_goes_on(benchmark, tmp_path, monkeypatch, capsys):
    def diverges(run, folder, *rest):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.jsonl").touch()
        raise Diverged(1, "why", {}, (Option("optimizer.lr"),))

    monkeypatch.setattr(tuning, "train", diverges)
    chosen = few_cells(benchmark, methods=("none", "sec"))
    file = tmp_path / "r.json"
    records = reproduce.reproduce(chosen, (0,), True, reproduce.Results(file), tmp_path / "runs", "cpu")
    assert [r["last"] for r in records] == [{}, {}] and "diverged" in records[0]["diverged"]
    assert "training diverged" in capsys.readouterr().err


def test_results_that_cannot_be_read_are_named(tmp_path):
    for held in (b"[]", b"\x93" + bytes(100_000)):
        (tmp_path / "r.json").write_bytes(held)
        with pytest.raises(NotResults) as caught:
            reproduce.Results(tmp_path / "r.json")
        assert caught.value.path == tmp_path / "r.json" and len(str(caught.value)) < 400, "without what it holds"


def test_an_older_file_of_results_is_gone_on_with_in_todays_words(benchmark, tmp_path):
    file, chosen = tmp_path / "r.json", few_cells(benchmark, methods=("none", "sec"))
    (only,) = [{cell: {"none": its["none"]} for cell, its in chosen.items()}]
    (made,) = reproduce.reproduce(only, (0,), False, reproduce.Results(file), tmp_path / "runs", "cpu")
    held = json.loads(file.read_text())
    (run,) = held["runs"]
    assert "arm" not in run and "seed" not in run
    older = {"arm" if key == "method" else key: value for key, value in run.items()} | {"deviation": "a copy"}
    older["recipe"] = json.loads(json.dumps(run["recipe"]).replace("optimizer", "optimiser"))
    del older["notes"]
    file.write_text(json.dumps(held | {"runs": [older]}))
    records = reproduce.reproduce(chosen, (0,), False, reproduce.Results(file), tmp_path / "runs", "cpu")
    assert [record["method"] for record in records] == ["none", "sec"] and records[0]["last"] == made["last"]
    now = json.loads(file.read_text())["runs"]
    assert now[0] == run | {"notes": ["a copy"]} and [its["method"] for its in now] == ["none", "sec"]


@pytest.mark.parametrize("prefix", ["", "paper-"])
def test_every_recipe_of_the_benchmarks_takes_a_step(benchmark, prefix):
    """All losses, constraints, optimizers and schedules of all data sets, on miniature data and a small network."""
    before = None
    names = [n for n in ALL if n.startswith(tuple(f"{prefix}{d}-" for d in ("cub200", "cars196", "sop", "inshop")))]
    assert len(names) > 100
    for name in names:
        changes = TINY | {"data.root": str(benchmark), "data.pack": str(benchmark / "packed"), "data.name": "cub200"}
        run = loop.prepare(override(ALL[name], changes), torch.device("cpu"), before)
        before = run
        batch = next(iter(loop.training_feed(run)))
        weights = [p.detach().clone() for p in run.model.parameters()]
        found = loop.train_step(run, batch.images, batch.labels)
        assert found["loss"].isfinite(), name
        moved = [not torch.equal(old, new) for old, new in zip(weights, run.model.parameters(), strict=True)]
        assert any(moved), name

"""Run folders and files of results: strict reading raises a type, lenient reading notes the problem and goes on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from isosphere import paper, runs
from isosphere.errors import DamagedFile, Incompatible, NotARun, NotResults, Option, OtherVersion, UnfinishedRun
from isosphere.recipes import options, schema

BEFORE = json.loads((Path(__file__).parent / "golden" / "recipes_before_redesign.json").read_text())
RESULTS = Path(__file__).parents[1] / "results"
NO_RUNS = ("bench_", "figures_cars196_triplet", "resume_h200")  # what else is measured there


@pytest.fixture
def folder(tmp_path):
    """A finished run folder as the loop writes it: 3 test images, two snapshots, three lines."""
    (tmp_path / "run" / runs.SNAPSHOTS).mkdir(parents=True)
    folder = tmp_path / "run"
    recipe = options.to_dict(paper.find("cub200-ms-sec", {"loop.snapshot_every": 10, "seed": 3}))
    (folder / runs.RECIPE).write_text(json.dumps(recipe))
    (folder / runs.RUN).write_text(json.dumps({"seen_from": "..", "git": "abc"}))
    lines = [
        {"step": 0, "kind": "test", "recall@1": 0.25, "norm_mean": 9.0},
        {"step": 5, "kind": "train", "loss": 1.0, "norm_mean": 8.0, "norm_variance": float("inf")},
        {"step": 5, "kind": "warning", "warning": "spread", "text": "norms spread"},
    ]
    (folder / runs.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    last = {"recall@1": 0.5, "norm_mean": 2.0, "norm_variance": float("nan")}
    (folder / runs.RESULT).write_text(json.dumps({"recipe": recipe, "last": last, "notes": ["a copy"]}))
    arrays = {"embeddings": np.eye(3, 2, dtype=np.float16), "scale": 4.0, "labels": np.array([0, 0, 1])}
    np.savez(folder / runs.EMBEDDINGS, **arrays)
    np.savez(folder / runs.SNAPSHOTS / "step-0000000.npz", norms=np.ones(4))
    np.savez(folder / runs.SNAPSHOTS / "step-0000010.npz", norms=np.ones(4), angles=np.arange(4))
    return folder


def test_a_run_is_read_whole(folder):
    run = runs.read(folder, strict=True)
    assert (run.name, run.recipe.seed, run.values["seed"], run.finished) == ("run", 3, 3, True)
    assert run.last == {"recall@1": 0.5, "norm_mean": 2.0} and run.about["notes"] == ["a copy"]
    assert run.course("test", "recall@1") == [(0, 0.25)] and run.course("train", "norm_variance") == []
    assert run.of_kind("warning") == [{"step": 5, "kind": "warning", "warning": "spread", "text": "norms spread"}]
    assert [(shot.step, shot.since) for shot in run.snapshots] == [(0, None), (10, 0)]
    assert run.embedded.embeddings.max() == 4.0 and run.embedded.is_query.all() and run.saved == 0
    assert len(run.problems) == 2 and all("norm_variance" in problem for problem in run.problems)


@pytest.mark.parametrize("name", BEFORE)
def test_an_old_run_is_read_in_todays_words(tmp_path, name):
    """What the commit before the redesign wrote, of every kind of constraint and data."""
    folder, lines = tmp_path / "run", ['{"step": 1, "kind": "alarm", "alarm": "normalised", "text": "x"}']
    (folder / runs.SNAPSHOTS).mkdir(parents=True)
    (folder / runs.RECIPE).write_text(json.dumps(BEFORE[name]))
    (folder / runs.RUN).write_text('{"command": "isosphere train"}')
    result = {"recipe": BEFORE[name], "last": {"recall@1": 0.5}, "oracle": {}, "deviation": "a copy"}
    (folder / runs.RESULT).write_text(json.dumps(result))
    lines += ['{"step": 2, "kind": "test", "recall@1": 0.5}', '{"step": 2, "kind": "turn", "turn_mean": 1.0}']
    (folder / runs.METRICS).write_text("\n".join(lines) + "\n")
    np.savez(folder / runs.SNAPSHOTS / "step-0000000.npz", norms=np.ones(4))
    np.savez(folder / runs.EMBEDDINGS, embeddings=np.eye(2, dtype=np.float16), scale=1.0, labels=np.arange(2))
    torch.save({"step": 2, "optimiser": {}}, folder / runs.CHECKPOINT)
    run = runs.read(folder, strict=True)
    now = replace(paper.ALL[name], claim="")
    if isinstance(now.data, schema.Folder):  # before there was a seed, the first classes by name trained
        now = replace(now, data=replace(now.data, seed=None))
    assert run.recipe == now and runs.read_recipe(folder) == run.recipe
    assert run.about["notes"] == ["a copy"] and run.last == {"recall@1": 0.5} and run.problems == []
    assert run.of_kind("warning") == [{"step": 1, "kind": "warning", "warning": "normalized", "text": "x"}]
    assert len(run.of_kind("turn")) == len(run.snapshots) == 1 and run.embedded.classes == []
    assert runs.bases(folder)[0] == tmp_path, "an older run does not say where it was trained"

    record = result | {"cell": "a-b", "arm": "sec", "tuned_by": "table3_cub200", "norms": [], "tests": [], "turns": []}
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"trials": [record], "runs": [record]}))
    results = runs.read_results(path)
    assert results.experiment is None and results.runs == results.trials
    assert (results.runs[0]["method"], results.runs[0]["tuned_by"]) == ("sec", "retrieval_cub200")
    assert runs.recipe_of(results.runs[0]["recipe"]) == run.recipe


def test_old_words_in_parts():
    assert runs.translate_record({"arm": "sec", "deviation": ""}) == {"method": "sec", "notes": []}
    assert runs.translate_checkpoint({"optimiser": 1, "step": 2}) == {"optimizer": 1, "step": 2}
    unlabeled = {"data": {"kind": "Unlabelled"}}
    assert runs.translate_recipe(unlabeled) == {"data": {"kind": "Unlabeled"}}


@pytest.mark.parametrize(
    ("file", "content", "error", "field"),
    [
        (runs.RECIPE, None, NotARun, None),
        (runs.RECIPE, "[1]", DamagedFile, ""),
        (runs.RECIPE, '{"data": {"kind": "Nothing"}}', OtherVersion, "data"),
        (runs.RECIPE, '{"loop": {"wobble": 1}}', OtherVersion, "loop.wobble"),
        (runs.RECIPE, '{"optimiser": {"lr": -1}}', OtherVersion, "optimizer.lr"),
        (runs.METRICS, None, UnfinishedRun, None),
        (runs.METRICS, '{"step"\n{"step": 1, "kind": "test"}', DamagedFile, "line 1"),
        (runs.METRICS, '{"step": 1, "kind": "test"}\n{"kind": "test"}\n{}', DamagedFile, "line 2"),
        (runs.RESULT, "{}", OtherVersion, "last"),
        (runs.RESULT, '{"last": ', DamagedFile, ""),
        (f"{runs.SNAPSHOTS}/step-0000010.npz", "PK", DamagedFile, ""),
        (runs.EMBEDDINGS, "PK", DamagedFile, ""),
    ],
)
def test_a_broken_file_is_raised_or_noted(folder, file, content, error, field):
    path = folder / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(error) as caught:
        runs.read(folder, strict=True).embedded  # noqa: B018
    place = caught.value.folder if field is None else caught.value.path
    assert place == (folder if field is None else path) and (field is None or caught.value.field == field)
    run = runs.read(folder)
    assert (run.embedded is None) == (file == runs.EMBEDDINGS)
    assert any(path.name in problem and "norm_variance" not in problem for problem in run.problems)
    assert runs.read(folder).last["recall@1"] == (0.25 if file == runs.RESULT else 0.5)


def test_a_line_under_way_is_left_out(folder):
    with open(folder / runs.METRICS, "a") as lines:
        lines.write('{"step": 30, "ki')
    assert len(runs.read(folder, strict=True).lines) == 3


def test_an_unfinished_run_has_the_step_of_its_checkpoint(folder):
    (folder / runs.RESULT).unlink()
    torch.save({"step": 7}, folder / runs.CHECKPOINT)
    run = runs.read(folder)
    assert (run.finished, run.saved, run.about["git"], run.last["recall@1"]) == (False, 7, "abc", 0.25)
    (folder / runs.CHECKPOINT).write_bytes(b"")
    run = runs.read(folder)
    before = len(run.problems)
    assert run.saved == 0 and len(run.problems) == before + 1


def test_snapshots_of_an_older_run_count_from_the_one_before_only_if_it_is_there(folder):
    shots = folder / runs.SNAPSHOTS
    np.savez(shots / "step-0000030.npz", norms=np.ones(4), angles=np.ones(4))  # 20 is missing
    np.savez(shots / "step-0000040.npz", norms=np.ones(4), angles=np.ones(4), since=7)
    assert [shot.since for shot in runs.read(folder).snapshots] == [None, 0, None, 7]


def test_a_folder_of_nothing_is_refused(tmp_path):
    for read in (runs.read, runs.read_recipe):
        with pytest.raises(NotARun) as caught:
            read(tmp_path)
        assert isinstance(caught.value, FileNotFoundError) and caught.value.folder == tmp_path


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_file_of_results_loads(path):
    if path.name.startswith(NO_RUNS):
        with pytest.raises(NotResults):
            runs.read_results(path)
        return
    results = runs.read_results(path)
    assert results.name == path.stem and results.runs and not results.problems
    for record in (*results.runs, *results.trials):
        assert {"cell", "method", "seed", "recipe", "last"} <= record.keys() and "arm" not in record
        assert runs.recipe_of(record["recipe"]).seed == record["seed"]


def test_results_that_cannot_be_read(tmp_path):
    path, good = tmp_path / "a.json", {"name": "x-seed4", "recipe": {"seed": 4}, "last": {"nmi": 0.5, "f1": None}}
    for odd, field in (
        ({"cell": "a"}, "recipe"),
        (good | {"recipe": [1]}, "recipe"),
        (good | {"last": None}, "last"),
        (good | {"norms": {}}, "norms"),
        (good | {"name": ""}, "method"),
        ("a", ""),
    ):
        path.write_text(json.dumps({"runs": [good, odd]}))
        with pytest.raises(NotResults) as caught:
            runs.read_results(path)
        assert (caught.value.path, caught.value.field) == (path, f"runs[1].{field}".rstrip("."))
    path.write_text(json.dumps({"runs": [], "trials": 3}))
    with pytest.raises(NotResults) as caught:
        runs.read_results(path, strict=False)
    assert caught.value.field == "trials"
    path.write_text(json.dumps({"runs": [good, {"cell": "a"}]}))
    results = runs.read_results(path, strict=False)
    assert len(results.problems) == 1 and results.trials == []
    (record,) = results.runs
    assert (record["cell"], record["method"], record["seed"], record["last"]) == ("a", "x", 4, {"nmi": 0.5})
    for text in ("[]", "{}", "{", '{"runs": []}'):
        path.write_text(text)
        with pytest.raises(NotResults):
            runs.read_results(path, strict=False)
    with pytest.raises(NotResults):
        runs.read_results(tmp_path / "none.json")


def test_a_monitors_file_is_split_where_a_run_started(tmp_path):
    lines = [
        {"step": 1, "kind": "train", "norm_mean": 3.0, "loss": 1.0},
        {"step": 2, "kind": "probe", "since": 1, "turn_slope": -1.0, "angles": [np.pi, None]},
        {"step": 0, "kind": "start"},
        {"step": 1, "kind": "train", "norm_mean": 4.0},
    ]
    path = tmp_path / "norms.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert runs.is_monitor(path) and not runs.is_monitor(tmp_path / "none")
    first, second = runs.read_monitor(path)
    assert first.watched and first.embedded is None and first.last == {"norm_mean": 3.0}
    assert first.snapshots[0].angles.tolist() == [180.0] and first.snapshots[0].since == 1
    assert second.last == {"norm_mean": 4.0} and first.name != second.name


def test_images_are_found_from_where_the_run_was_trained(tmp_path, monkeypatch):
    for place in ("project", "runs", "here"):  # only the first is what was trained on
        (tmp_path / place / "photos").mkdir(parents=True)
        (tmp_path / place / "photos" / "a.png").write_bytes(b"")
    run = tmp_path / "runs" / "one"
    run.mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert runs.locate("a.png", "photos", run) == tmp_path / "runs" / "photos" / "a.png", "an older run does not say"
    (run / runs.RUN).write_text('{"seen_from": "../../project"}')
    assert runs.locate("a.png", "photos", run).resolve() == tmp_path / "project" / "photos" / "a.png"


def test_an_old_balanced_constraint_takes_no_fields_with_it():
    old = {"constraint.balanced": "true", "constraint.eta": "0", "seed": "1"}
    with pytest.warns(UserWarning, match="constraint.balanced, constraint.eta"):
        changes = runs.translate_changes(old)
    assert changes == {"constraint": "BalancedDirections", "seed": "1"}


@pytest.mark.parametrize("eta, method", [(0.0, "balanced"), (0.1, "")])
def test_an_old_balanced_constraint_with_a_penalty_is_not_read_as_another_one(eta, method):
    old = {"constraint": {"balanced": True, "eta": eta, "radius": "batch"}}
    if method:
        assert runs.recipe_of(old).constraint.method == method
    else:
        with pytest.raises(ValueError):
            runs.recipe_of(old)


@pytest.mark.parametrize(
    ("old", "now"),
    [
        ({"constraint.radius": "0", "constraint.relative": "false"}, {"constraint": "L2Reg"}),
        ({"constraint.rho": 0.1, "constraint.radius": 0.0}, {"constraint": "L2Reg"}),
        ({"constraint.radius": 0, "constraint.eta": 1}, {"constraint": "L2Reg", "constraint.eta": 1}),
        ({"optimiser.lr": 1, "optimizer.lr": 1}, {"optimizer.lr": 1}),
    ],
)
def test_old_fields_that_mean_nothing_today_are_dropped(old, now):
    with pytest.warns(UserWarning):
        assert runs.translate_changes(old) == now
    paper.find("rendered", now)


def test_lines_of_a_run_under_way_stand_as_they_are_in_todays_words(tmp_path):
    odd = {"step": 2, "kind": "test", "nmi": float("inf"), "since": None}
    lines = [{"step": 1, "kind": "alarm", "alarm": "normalised", "text": "x"}, odd]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / runs.METRICS).write_text(text + '[]\n{"kind": "test"}\n{"step": 3, "ki')
    assert runs.entries(tmp_path) == [{"step": 1, "kind": "warning", "warning": "normalized", "text": "x"}, odd]
    assert runs.entries(tmp_path, "test") == [odd] and runs.entries(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"optimiser.lr": 1, "optimizer.lr": 2}, (Option("optimizer.lr", 1), Option("optimizer.lr", 2))),
        ({"optimizer.lr": 2, "optimiser.lr": 1}, (Option("optimizer.lr", 2), Option("optimizer.lr", 1))),
        ({"constraint": "SEC", "constraint.balanced": True},
         (Option("constraint", "SEC"), Option("constraint", "BalancedDirections"))),
    ],
)  # fmt: skip
def test_two_spellings_of_one_field_with_two_values_are_refused(given, values):
    with pytest.raises(Incompatible) as caught:
        runs.translate_changes(given)
    assert (caught.value.fields, caught.value.remedies) == (tuple(given), values)

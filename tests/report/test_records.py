"""Runs as figures read them: what is half-written or not recorded is a type that says what to do."""

import json

import numpy as np
import pytest

from isosphere import runs
from isosphere.errors import BadArgument, DamagedFile, MissingPart, NotARun, NotResults, OtherVersion, UnfinishedRun
from isosphere.report import records
from isosphere.report.norms import last_norms
from isosphere.report.turns import turns


def first(path, **options):
    return records.read_all([path], **options)[0]


def embeddings_of(path):
    return records.embedded(records.read_folders([path])[0])


def norms_of(path):
    return last_norms(records.read_folders([path])[0])


def turns_of(path):
    return turns(records.read_folders([path])[0])


def test_a_run_is_read_whole(make_run):
    found = first(make_run("r", "cars196-ms-sec", seed=3))
    assert (found["name"], found["method"], found["cell"]) == ("r", "sec", "Cars196, multi-similarity")
    assert [test["step"] for test in found["tests"]] == [0, 10, 20]
    assert found["last"]["recall@1"] == 0.5 and found["seed"] == found["recipe"]["seed"]
    assert found["norms"] == [[5, 1.0, 8.0, 0.5], [15, 1.0, 18.0, 0.5], [25, 1.0, 28.0, 0.5]]


@pytest.mark.parametrize(
    ("broken", "read", "error"),
    [
        (runs.RECIPE, first, NotARun), (runs.METRICS, first, UnfinishedRun),
        (runs.RESULT, lambda run: first(run, finished=True), UnfinishedRun),
        (runs.EMBEDDINGS, embeddings_of, MissingPart), (runs.SNAPSHOTS, norms_of, MissingPart),
        (runs.SNAPSHOTS, turns_of, MissingPart),
    ],
)  # fmt: skip
def test_what_is_missing_is_a_type_with_its_folder(make_run, broken, read, error):
    run = make_run()
    (run / broken).rename(run / f"no-{broken}")
    with pytest.raises(error) as refused:
        read(run)
    assert refused.value.folder == run


@pytest.mark.parametrize(
    ("name", "read"),
    [(runs.RECIPE, first), (runs.RESULT, first), (runs.EMBEDDINGS, embeddings_of),
     (f"{runs.SNAPSHOTS}/step-0001000.npz", norms_of)],
)  # fmt: skip
def test_a_file_cut_short_is_damaged(make_run, name, read):
    path = make_run() / name
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DamagedFile) as refused:
        read(path.parents[name.count("/")])
    assert refused.value.path == path


@pytest.mark.parametrize(("recipe", "every"), [("cub200-triplet", 160), ("lfw-cosface-sec", 6)])
def test_snapshots_are_to_be_a_tenth_of_the_run_in_what_its_length_counts(make_run, recipe, every):
    run = make_run("run", recipe)
    for path in (run / runs.SNAPSHOTS).iterdir():
        np.savez(path, norms=np.ones(3))
    with pytest.raises(MissingPart) as refused:
        turns_of(run)
    assert [(one.field, one.value) for one in refused.value.options] == [
        ("loop.snapshot_every", every), ("loop.snapshot_images", 0),
    ]  # fmt: skip


def test_embeddings_of_another_version_are_refused(make_run):
    run = make_run()
    np.savez(run / runs.EMBEDDINGS, embeddings=np.ones((2, 2)), labels=np.zeros(2))
    with pytest.raises(OtherVersion):
        embeddings_of(run)


def test_results_are_read_or_refused(make_results, recipe_dict, tmp_path):
    path = make_results(runs=[("cell", "sec", recipe_dict("cub200-ms-sec", seed=4), {"recall@1": 0.5})])
    found = first(path)
    assert (found["cell"], found["method"], found["seed"], found["last"]) == ("cell", "sec", 4, {"recall@1": 0.5})
    for refused in (lambda: first(path, kind="trials"), lambda: first(tmp_path / "none.json")):
        with pytest.raises(NotResults):
            refused()
    for content in ('{"runs": [{"cell": "a"}]}', "[]"):
        path.write_text(content)
        with pytest.raises(NotResults):
            first(path)
    with pytest.raises(BadArgument):
        records.read_all([])


def test_a_metric_is_one_that_was_measured():
    found = [{"knn": 0.5}, {"probe_top1": 0.6, "step": 3}]
    assert records.checked_metric("", found) == "probe_top1"
    assert records.checked_metric("", found, training=True) == "knn"
    assert records.checked_metric("knn", found) == "knn"
    for metric, its in (("recall@1", found), ("step", found), ("", [{}])):
        with pytest.raises(BadArgument):
            records.checked_metric(metric, its)


def test_a_run_that_has_not_finished_has_no_last(make_run):
    run = make_run()
    (run / runs.RESULT).unlink()
    assert first(run)["last"] == {}
    (run / runs.METRICS).write_text(json.dumps({"step": 0, "kind": "test", "recall@1": 0.5}))
    assert len(first(run)["tests"]) == 1


def test_an_evaluation_has_the_mean_loss_since_the_one_before():
    logged = [{"step": step, "metric": float(step), "loss": 99.0} for step in (1, 2, 3, 4)] + [{"step": 5, "loss": 9.0}]
    found = records.with_training_loss([{"step": 0}, {"step": 2}, {"step": 4}, {"step": 5}], logged)
    assert found == [{"step": 0}, {"step": 2, "training_loss": 1.5}, {"step": 4, "training_loss": 3.5}, {"step": 5}]

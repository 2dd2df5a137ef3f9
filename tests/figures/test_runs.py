"""Reading runs: what is half-written, of another version or not recorded is told in a line that says what to do."""

import json
from dataclasses import replace

import numpy as np
import pytest

from isosphere.figures import runs, words
from isosphere.figures.directions import turns
from isosphere.figures.norms import last_norms
from isosphere.paper import find


def test_a_run_is_read_whole(make_run):
    record = runs.read_run(make_run("r", "cars196-ms-sec", seed=3))
    assert (record.name, record.arm, record.cell) == ("r", "sec", "Cars196, multi-similarity")
    assert [test["step"] for test in record.tests] == [0, 10, 20] and record.last["recall@1"] == 0.5
    assert record.norms == [(5, 8.0, 0.5), (15, 18.0, 0.5), (25, 28.0, 0.5)]


def test_a_line_under_way_is_left_out_and_a_damaged_one_told(make_run):
    run = make_run()
    path = run / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"step": 30, "ki')
    assert len(runs.read_run(run).tests) == 3
    for line in ('{"step"', "[1, 2]", "7", '{"kind": "test"}'):
        path.write_text(f"{line}\n{whole}")
        with pytest.raises(ValueError, match=r"metrics.jsonl line 1 is damaged"):
            runs.read_run(run)
    path.write_text(whole)
    (run / "result.json").write_text("{}")
    with pytest.raises(ValueError, match="result.json is of another version: it has no last"):
        runs.read_run(run)


@pytest.mark.parametrize(
    ("broken", "read", "told"),
    [
        ("recipe.json", runs.read_run, "is not a run folder: it has no recipe.json"),
        ("metrics.jsonl", runs.read_run, "has no metrics.jsonl: the run has not begun"),
        (
            "result.json",
            lambda run: runs.read_run(run, finished=True),
            "not finished; go on with `isosphere train --resu",
        ),
        ("test_embeddings.npz", runs.read_embeddings, "--loop.save_embeddings true"),
        ("snapshots", last_norms, "--loop.snapshot_every 160 --loop.snapshot_images 0"),
        ("snapshots", turns, "--loop.snapshot_every 160 --loop.snapshot_images 0"),
    ],
)
def test_what_is_missing_is_said(make_run, broken, read, told):
    run = make_run()
    (run / broken).rename(run / f"no-{broken}")
    with pytest.raises(ValueError) as caught:
        read(run)
    assert told in str(caught.value) and str(run) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("recipe.json", runs.read_run),
        ("result.json", runs.read_run),
        ("test_embeddings.npz", runs.read_embeddings),
        ("snapshots/step-0001000.npz", runs.read_snapshots),
    ],
)
def test_a_file_cut_short_is_said(make_run, name, read):
    run = make_run()
    path = run / name
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match="damaged or half-written"):
        read(run)


def test_snapshots_without_angles_say_how_to_record_them(make_run):
    run = make_run()
    for path in (run / "snapshots").iterdir():
        np.savez(path, norms=np.ones(3))
    with pytest.raises(ValueError, match="no angles between two snapshots.*--loop.snapshot_every 160"):
        turns(run)


def test_snapshots_are_to_be_a_tenth_of_the_run_in_what_its_length_counts(make_run):
    run = make_run("faces", "lfw-cosface-sec")
    (run / "snapshots").rename(run / "none")
    with pytest.raises(ValueError, match="--loop.snapshot_every 6 --loop.snapshot_images 0"):  # of 60 epochs
        last_norms(run)


def test_another_version_is_said(make_run):
    run = make_run()
    np.savez(run / "test_embeddings.npz", embeddings=np.ones((2, 2)), labels=np.zeros(2))
    with pytest.raises(ValueError, match="of another version: it has no scale"):
        runs.read_embeddings(run)
    (run / "recipe.json").write_text("[1]")
    with pytest.raises(ValueError, match="not a recipe of this version"):
        runs.read_run(run)
    (run / "recipe.json").write_text(json.dumps({"data": {}, "constraint": None}))
    with pytest.raises(ValueError, match="its constraint has no fields"):
        runs.read_run(run)
    (run / "recipe.json").write_text(json.dumps({"data": {"kind": "Benchmark", "name": "sop"}}))
    assert words.labels([runs.read_run(run).recipe]) == ["baseline"]  # old recipes lack groups; that is no error


def test_results_are_read_or_refused(make_results, recipe_dict, tmp_path):
    path = make_results(runs=[("cell", "sec", recipe_dict("cub200-ms-sec", seed=4), {"recall@1": 0.5})])
    (record,) = runs.read_all([path])
    assert (record.cell, record.arm, record.seed, record.last) == ("cell", "sec", 4, {"recall@1": 0.5})
    with pytest.raises(ValueError, match="holds no trials, only 1 runs"):
        runs.read_all([path], "trials")
    path.write_text('{"runs": [{"cell": "a"}]}')
    with pytest.raises(ValueError, match="record 0 of runs cannot be read"):
        runs.read_all([path])
    path.write_text("[]")
    with pytest.raises(ValueError, match="not a file of results"):
        runs.read_all([path])
    with pytest.raises(ValueError, match="no such file"):
        runs.read_all([tmp_path / "none.json"])
    with pytest.raises(ValueError, match="at least one"):
        runs.read_all([])


@pytest.mark.parametrize(
    ("name", "changes", "arm", "said"),
    [
        ("cub200-ms", {}, "none", "baseline"),
        ("cub200-ms-l2reg", {"constraint_eta": 0.001}, "l2reg", "L2-reg (η 0.001)"),
        ("cub200-ms-sec", {"constraint_eta": 0.25}, "sec", "SEC (η 0.25)"),
        ("cub200-ms-sec", {"constraint_eta": 1, "constraint_radius": 8.7}, "sec-fixed", "SEC, fixed radius 8.7 (η 1)"),
        ("cub200-ms-sec-ema", {"constraint_eta": 1}, "sec-ema", "SEC-EMA (η 1)"),
        ("cub200-ms-sec-relative", {"constraint_eta": 5}, "sec-relative", "relative SEC (η 5)"),
        ("cub200-ms-sec-initial", {"constraint_eta": 1}, "sec-initial", "SEC, initial radius (η 1)"),
        ("cub200-ms-balanced", {}, "balanced", "balanced directions"),
    ],
)
def test_constraints_have_words(recipe_dict, name, changes, arm, said):
    recipe = recipe_dict(name, **changes)
    assert words.arm(recipe) == arm and words.constraint(recipe) == said


@pytest.mark.parametrize(
    ("name", "changes", "called", "claim"),
    [
        ("rendered-sec", {"loop.steps": "7"}, "rendered-sec", "norms pulled to the batch's mean"),
        ("rendered-sec", {"constraint.eta": "0"}, "rendered", "characters of many scripts: baseline"),
        ("rendered-sec", {"constraint.radius": "8"}, "rendered-sec-fixed", ": SEC, fixed radius 8 (η 0.1)"),
        ("rendered", {"constraint": "BalancedDirections"}, "rendered-balanced", ": balanced directions"),
        ("cars196-triplet-eta0.5", {"constraint.eta": "0.3"}, "cars196-triplet-sec", "cars196, triplet: SEC (η 0.3)"),
        ("simclr-cifar10-200-sec", {"constraint.eta": "0"}, "simclr-cifar10-200", "200 epochs: baseline"),
        ("photos-sec", {"data.root": "a/ok.csv"}, "ok-sec", "your own images: norms pulled to the batch's mean"),
        ("photos", {"data.root": "a/ok.csv"}, "ok", "your own images: no constraint on the norms"),
        ("simclr-photos-sec", {"data.root": "a/ok.csv"}, "simclr-ok-sec", "norms pulled to the batch's mean"),
        ("faces-cosface-sec", {"data.root": "a/people"}, "people-cosface-sec", "norms pulled to the batch's mean"),
        ("faces-arcface", {"data.root": "ok.rec"}, "ok-arcface", "no constraint on the norms"),
        ("lfw-arcface", {"data.root": "a/people"}, "lfw-arcface", "no constraint on the norms"),
        ("photos-sec", {"data.root": "ok.csv", "loss": "ArcFace"}, "ok-arcface-sec", "ArcFace loss: SEC (η 0.1)"),
        ("rendered-sec", {"constraint.eta": "0", "claim": "mine"}, "rendered", "mine"),
    ],
)
def test_a_run_is_called_and_claims_what_its_recipe_has_become(name, changes, called, claim):
    found, recipe = words.named(name, find(name, changes))
    assert found == called and recipe.claim.endswith(claim)
    assert recipe == replace(find(name, changes), claim=recipe.claim)


def test_labels_say_what_differs_and_no_more(recipe_dict):
    plain, sec = recipe_dict("cub200-ms"), recipe_dict("cub200-ms-sec", constraint_eta=0.5)
    assert words.labels([plain, sec]) == ["baseline", "SEC (η 0.5)"]
    other = recipe_dict("cub200-ms", seed=1, optimizer_lr=0.001)
    assert words.labels([plain, other]) == [f"baseline, lr {plain['optimizer']['lr']:g}, seed 0",
                                            "baseline, lr 0.001, seed 1"]  # fmt: skip
    assert words.labels([plain, other], without=("seed", "rate")) == ["baseline", "baseline"]
    assert words.labels([plain, plain], ["a", "b"]) == ["baseline, a", "baseline, b"]
    assert words.dataset(recipe_dict("cub200-ms", data_held_out=20)) == "CUB-200-2011 (held-out training classes)"
    assert words.dataset(recipe_dict("simclr-cifar10", data_held_out=0.1)) == "CIFAR-10 (held-out training images)"
    assert words.about([plain, recipe_dict("cars196-ms")]) == "CUB-200-2011 and Cars196, multi-similarity loss"


def test_images_are_seen_from_where_the_run_was_trained(tmp_path, monkeypatch):
    for place in ("project", "runs", "here"):  # only the first is what was trained on
        (tmp_path / place / "photos").mkdir(parents=True)
        (tmp_path / place / "photos" / "a.png").write_bytes(b"")
    run = tmp_path / "runs" / "one"
    run.mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert runs.locate("a.png", "photos", run) == tmp_path / "runs" / "photos" / "a.png", "an older run does not tell"
    (run / "run.json").write_text('{"seen_from": "../../project"}')
    assert runs.locate("a.png", "photos", run).resolve() == tmp_path / "project" / "photos" / "a.png"

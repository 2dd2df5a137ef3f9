"""Norms, angles and the map: the numbers behind them against loops and scikit-learn."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from isosphere.figures import directions, norms, projection, style


def variance(values):
    mean = sum(map(float, values)) / len(values)
    return sum((float(value) - mean) ** 2 for value in values) / len(values)


def test_norms_of_the_last_snapshot_and_of_test_embeddings(make_run):
    run = make_run()
    last = np.load(run / "snapshots" / "step-0002000.npz")["norms"]
    assert (norms.last_norms(run) == last).all()
    held = np.load(run / "test_embeddings.npz")
    expected = [sum((float(x) * float(held["scale"])) ** 2 for x in row) ** 0.5 for row in held["embeddings"]]
    assert norms.last_norms(run, "test") == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="train or test"):
        norms.last_norms(run, "both")


def test_the_figure_of_norms_has_a_column_for_each_data_set(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", "cub200-triplet-sec"), make_run("c", "cars196-triplet")]
    text = norms.norms(runs, tmp_path / "n")[1].read_text()
    for run in runs:
        lengths = norms.last_norms(run)
        assert f"mean {np.mean(lengths):.3g}, variance {variance(lengths):.3g}" in text
    assert "CUB-200-2011, 50 images" in text and "Cars196, 50 images" in text and "norm |f|" in text


def test_turns_are_by_interval_with_their_variance(make_run, tmp_path):
    runs = [make_run("a", seed=1), make_run("b", "cub200-triplet-sec", seed=2)]
    found = directions.turns(runs[0])
    assert list(found) == [(0, 1000), (1000, 2000)]
    text = directions.directions(runs, tmp_path / "d")[1].read_text()
    for run in runs:
        for step in (1000, 2000):
            angles = np.load(run / "snapshots" / f"step-{step:07d}.npz")["angles"]
            assert f"variance {variance(angles):.3g} deg²" in text
    assert "step 1,000 → 2,000" in text and "50 training embeddings" in text and "degrees" in text


def test_only_intervals_that_all_runs_have_are_drawn(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", "cub200-triplet-sec")]
    (runs[1] / "snapshots" / "step-0002000.npz").unlink()
    text = directions.directions(runs, tmp_path / "d")[1].read_text()
    assert "step 0 → 1,000" in text and "1,000 → 2,000" not in text
    (runs[1] / "snapshots" / "step-0001000.npz").unlink()
    np.savez(runs[1] / "snapshots" / "step-0000500.npz", norms=np.ones(50), angles=np.ones(50), since=0)
    with pytest.raises(ValueError, match="no interval between snapshots in common"):
        directions.directions(runs, tmp_path / "d")


def test_an_interval_with_a_missing_snapshot_is_told_by_since_or_left_out(make_run, tmp_path):
    run = make_run()
    folder = run / "snapshots"
    np.savez(folder / "step-0003000.npz", norms=np.ones(50), angles=np.ones(50))
    (folder / "step-0002000.npz").unlink()
    assert list(directions.turns(run)) == [(0, 1000)]  # an older run: 1000 -> 3000 would be wrong
    np.savez(folder / "step-0003000.npz", norms=np.ones(50), angles=np.ones(50), since=2000)
    assert list(directions.turns(run)) == [(0, 1000), (2000, 3000)]
    text = directions.directions([run], tmp_path / "d")[1].read_text()
    assert "step 2,000 → 3,000" in text and "intervals between are missing" in text
    for step in (1000, 3000):
        np.savez(folder / f"step-000{step}.npz", norms=np.ones(50), angles=np.ones(50))
    (folder / "step-0000000.npz").unlink()
    with pytest.raises(ValueError, match="has angles, but snapshots between are missing"):
        directions.turns(run)


def test_many_runs_with_long_names_are_readable_or_refused(make_run, tmp_path):
    runs = [
        make_run(f"a-run-whose-name-is-as-long-as-names-of-runs-can-be-{number}-of-thirteen") for number in range(13)
    ]
    text = norms.norms(runs, tmp_path / "n")[1].read_text()  # a layout that collapsed would be an error
    assert text.count("of-thirteen: mean") + text.count(">thirteen: mean") == 13
    with pytest.raises(ValueError, match="labels leave no room for the panels"):
        with style.sheet(tmp_path / "no", "title") as (_, panels):
            panels[0].plot([1], label="word " * 200)
            style.legend_above(panels[0])
    assert not (tmp_path / "no.png").exists()


def test_the_map_is_that_of_scikit_learn():
    embeddings = np.random.default_rng(0).normal(size=(40, 5)) * np.array([3, 2, 1, 0.5, 0.2])
    points, shares = projection.principal_map(embeddings)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    model = PCA(2).fit(unit)
    assert np.abs(points) == pytest.approx(np.abs(model.transform(unit)), abs=1e-9)
    assert shares == pytest.approx(model.explained_variance_ratio_)
    again, _ = projection.principal_map(embeddings * np.linspace(0.1, 9, 40)[:, None])
    assert again == pytest.approx(points)  # norms do not matter, and signs are not left to chance


def test_the_map_names_its_classes_and_shares(make_run, tmp_path):
    run = make_run()
    _, shares = projection.principal_map(norms.read_embeddings(run)[0])
    text = projection.projection([run], tmp_path / "m", classes=2)[1].read_text()
    assert "class 0" in text and "class 5" in text and "class 1" not in text
    assert f"first axis ({shares[0]:.1%} of the variance)" in text
    named = make_run("named", classes=["Zorro", "b", "c", "d", "e", "Black_footed_Albatross"])
    text = projection.projection([named], tmp_path / "m", classes=2)[1].read_text()
    assert ">Zorro<" in text and ">Black footed Albatross<" in text and ">class 0<" not in text
    with pytest.raises(ValueError, match="1 to 7 classes"):
        projection.projection([run], tmp_path / "m", classes=9)

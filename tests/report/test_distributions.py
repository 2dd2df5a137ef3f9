"""Norms, angles and the map: the numbers behind them against loops and scikit-learn."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from isosphere.errors import BadArgument, MissingPart, NoRoom
from isosphere.report import norms, projection, style, turns
from isosphere.report.records import embedded, read_folders
from isosphere.runs import RunFolder, Snapshot


def read(path):
    return read_folders([path])[0]


def variance(values):
    mean = sum(map(float, values)) / len(values)
    return sum((float(value) - mean) ** 2 for value in values) / len(values)


def test_norms_of_the_last_snapshot_and_of_test_embeddings(make_run):
    run = make_run()
    last = np.load(run / "snapshots" / "step-0002000.npz")["norms"]
    assert (norms.last_norms(read(run)) == last).all()
    held = np.load(run / "test_embeddings.npz")
    expected = [sum((float(x) * float(held["scale"])) ** 2 for x in row) ** 0.5 for row in held["embeddings"]]
    assert norms.last_norms(read(run), "test") == pytest.approx(expected, rel=1e-5)
    with pytest.raises(BadArgument):
        norms.last_norms(read(run), "both")


def test_the_figure_of_norms_has_a_column_for_each_data_set(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", "cub200-triplet-sec"), make_run("c", "cars196-triplet")]
    text = norms.norms(runs, tmp_path / "n")[1].read_text()
    for run in runs:
        lengths = norms.last_norms(read(run))
        assert f"mean {np.mean(lengths):.3g}, variance {variance(lengths):.3g}" in text
    assert "CUB-200-2011, 50" in text and "Cars196, 50" in text and "norm |f|" in text


def test_turns_are_by_interval_with_their_variance(make_run, tmp_path):
    runs = [make_run("a", seed=1), make_run("b", "cub200-triplet-sec", seed=2)]
    found = turns.turns(read(runs[0]))
    assert list(found) == [(0, 1000), (1000, 2000)]
    text = turns.directions(runs, tmp_path / "d")[1].read_text()
    for run in runs:
        for step in (1000, 2000):
            angles = np.load(run / "snapshots" / f"step-{step:07d}.npz")["angles"]
            assert f"variance {variance(angles):.3g} deg²" in text
    assert "1,000 → 2,000" in text and "50 training" in text and "degrees" in text


def test_only_intervals_that_all_runs_have_are_drawn(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", "cub200-triplet-sec")]
    (runs[1] / "snapshots" / "step-0002000.npz").unlink()
    text = turns.directions(runs, tmp_path / "d")[1].read_text()
    assert "0 → 1,000" in text and "1,000 → 2,000" not in text
    (runs[1] / "snapshots" / "step-0001000.npz").unlink()
    np.savez(runs[1] / "snapshots" / "step-0000500.npz", norms=np.ones(50), angles=np.ones(50), since=0)
    with pytest.raises(BadArgument):
        turns.directions(runs, tmp_path / "d")


def test_an_interval_with_a_missing_snapshot_is_reported_by_since_or_left_out(make_run, tmp_path):
    run = make_run()
    folder = run / "snapshots"
    np.savez(folder / "step-0003000.npz", norms=np.ones(50), angles=np.ones(50))
    (folder / "step-0002000.npz").unlink()
    assert list(turns.turns(read(run))) == [(0, 1000)]  # an older run: 1000 -> 3000 would be wrong
    np.savez(folder / "step-0003000.npz", norms=np.ones(50), angles=np.ones(50), since=2000)
    assert list(turns.turns(read(run))) == [(0, 1000), (2000, 3000)]
    text = turns.directions([run], tmp_path / "d")[1].read_text()
    assert "2,000 → 3,000" in text and "are missing" in text
    for step in (1000, 3000):
        np.savez(folder / f"step-000{step}.npz", norms=np.ones(50), angles=np.ones(50))
    (folder / "step-0000000.npz").unlink()
    with pytest.raises(MissingPart):
        turns.turns(read(run))


def test_many_runs_with_long_names_are_readable_or_refused(make_run, tmp_path):
    runs = [
        make_run(f"a-run-whose-name-is-as-long-as-names-of-runs-can-be-{number}-of-thirteen") for number in range(13)
    ]
    text = norms.norms(runs, tmp_path / "n")[1].read_text()  # a layout that collapsed would be an error
    assert text.count("of-thirteen: mean") + text.count(">thirteen: mean") == 13
    with pytest.raises(NoRoom):
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
    _, shares = projection.principal_map(embedded(read(run)).embeddings)
    text = projection.projection([run], tmp_path / "m", classes=2)[1].read_text()
    assert "class 0" in text and "class 5" in text and "class 1" not in text
    assert f"({shares[0]:.1%} of" in text
    named = make_run("named", classes=["Zorro", "b", "c", "d", "e", "Black_footed_Albatross"])
    text = projection.projection([named], tmp_path / "m", classes=2)[1].read_text()
    assert ">Zorro<" in text and ">Black footed " in text and ">class 0<" not in text
    with pytest.raises(BadArgument):
        projection.projection([run], tmp_path / "m", classes=9)


def test_a_narrow_distribution_keeps_its_shape_beside_a_wide_one():
    draw = np.random.default_rng(0).normal(size=(2, 2000))
    found = {"sec": 1 + 0.1 * draw[0], "none": np.maximum(0, 12 + 4 * draw[1]), "empty": np.zeros(3)}
    with style.our_style():
        panel = style.new_figure((3, 2)).subplots()
        norms.draw_densities(panel, found, dict.fromkeys(found, ("#000000", "-")), log=True)
    outlines = [patch for patch in panel.patches if patch.get_label() in found]
    assert [patch.get_label() for patch in outlines] == ["sec", "none"], "zeros have no logarithm"
    for patch in outlines:
        data = patch.get_data()
        assert np.count_nonzero(data.values > data.values.max() / 10) >= 8
        assert (np.diff(np.log(data.edges)) * data.values).sum() == pytest.approx(1)


def test_the_slope_of_turns_is_that_of_a_power_law(tmp_path):
    lengths = np.linspace(1, 5, 30)
    shots = [Snapshot(0, lengths, None, None), Snapshot(5, 2 * lengths, 7 * lengths**-2.0, 0)]
    shots.append(Snapshot(10, lengths, 3 * lengths**0.5, 5))
    slopes = turns.turn_slopes(RunFolder(tmp_path, "run", snapshots=shots))
    assert [step for step, _ in slopes] == [5, 10] and [slope for _, slope in slopes] == pytest.approx([-2, 0.5])
    assert turns.turn_slopes(RunFolder(tmp_path, "run", snapshots=shots[::2])) == [], "it began at step 5"
    alike = [Snapshot(0, np.ones(30), None, None), Snapshot(5, np.ones(30), lengths, 0)]
    assert turns.turn_slopes(RunFolder(tmp_path, "run", snapshots=alike)) == []

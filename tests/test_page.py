"""The report page: its numbers against plain loops, whatever is missing, and all of it in a real browser."""

import colorsys
import html
import json
import math
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import isosphere.page
from browser import Browser, find_browser
from isosphere.figures.style import ARM_COLORS
from isosphere.monitor import NormMonitor
from isosphere.page import write_page
from isosphere.page.charts import MARKS, Series, line_chart
from isosphere.page.distributions import distribution_chart, histogram
from isosphere.page.gallery import chosen, nearest
from isosphere.page.metrics import main_metrics
from isosphere.page.panels import turn_slopes
from isosphere.page.recipes import differing
from isosphere.page.sources import Embedded, Run, Snapshot, read_records, read_run
from isosphere.page.styles import ARM_STYLES
from isosphere.paper import find
from isosphere.recipes import options, schema
from tiny import tiny_recipe

NASTY = '<script>window.hacked = 1</script>"><img src=x onerror="window.hacked = 1"> & [[title]]'
CLASSES = [NASTY, "sparrow", "gull", "wren", "crow", "tern", "finch", "owl"]


def write_run(folder: Path, recall: float, seed: int, eta: str = "0.1", per_class: int = 6, size: int = 24,
              alarms: tuple[int, ...] = ()) -> Path:  # fmt: skip
    """A finished run as the loop leaves it, with numbers of our own."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    recipe = options.to_dict(tiny_recipe("rendered-sec", {"constraint.eta": eta, "claim": NASTY, "seed": 3}))
    last = {f"recall@{k}": recall + 0.02 * (k - 1) for k in (1, 2, 4, 8)}
    last |= {"map@r": recall / 2, "nmi": 0.5, "f1": 0.25, "singletons": 0}
    last |= {"norm_mean": 4.0 + seed, "norm_variance": 0.25, "norm_cv": 0.5 / (4.0 + seed)}
    lines = [{"step": 0, "kind": "test", **last, "recall@1": 0.1, "map@r": 0.05}]
    for step in range(1, 21):
        values = {"loss": 1 / step, "metric": 0.9 / step, "penalty": 0.1 / step}
        values |= {"norm_mean": 4 + seed + step / 50, "norm_variance": 1 / step, "norm_cv": 0.2, "not_finite": 0}
        values |= {"norm_min": 2 + seed, "norm_max": 7 + seed, "lr_proxy_mean": 1e-4 / step, "lr_proxy_cv": 0.21}
        values |= {"radial_share": 1e-15 * step, "tangential_share": 1.0, "lr": 9.999999747378752e-06}
        lines.append({"step": step, "kind": "train", **values})
    lines.append({"step": 20, "kind": "test", **last})
    for step in alarms:
        lines.append({"step": step, "kind": "alarm", "alarm": "spreading", "text": f"norms spread, {NASTY}"})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "recipe.json").write_text(json.dumps(recipe))
    about = {"versions": {"torch": "2.6", "isosphere": None}, "hardware": {"threads": 2}, "command": NASTY}
    (folder / "run.json").write_text(json.dumps(about))
    result = {"recipe": recipe, "last": last, "oracle": {"step": 20} | last, "seconds": 1.5, **about}
    (folder / "result.json").write_text(json.dumps(result))

    labels = np.repeat(np.arange(len(CLASSES)), per_class)
    embeddings = generator.normal(size=(len(CLASSES), 8))[labels] + 0.8 * generator.normal(size=(len(labels), 8))
    scale = np.abs(embeddings).max()
    halves = (embeddings / scale).astype(np.float16)
    np.savez(folder / "test_embeddings.npz", embeddings=halves, scale=scale, labels=labels, classes=np.array(CLASSES))
    pixels = generator.integers(0, 256, (len(labels), 3, size, size), dtype=np.uint8)
    np.savez_compressed(folder / "test_thumbnails.npz", pixels=pixels)

    (folder / "snapshots").mkdir()
    norms = 4 * np.exp(0.3 * generator.normal(size=50))
    for step in range(0, 21, 5):
        angles = {"angles": (30 / norms).astype(np.float32), "since": step - 5} if step else {}
        np.savez(folder / "snapshots" / f"step-{step:07d}.npz", indices=np.arange(50), norms=norms, **angles)
    return folder


def results_file(path: Path) -> Path:
    runs = []
    for cell in ("cub200-ms-lr1e-05", "cub200-ms-lr0.0002"):
        for arm, base in (("sec", 0.62), ("none", 0.60), ("sec-relative", 0.63)):
            for seed in range(2):
                fields = {"seed": seed, "constraint.eta": 0 if arm == "none" else len(arm), "loop.save_every": seed}
                fields["optimizer.lr"] = cell.split("lr")[1]
                recipe = options.to_dict(tiny_recipe("rendered-sec", fields))
                value = base + 0.01 * seed
                last = {"recall@1": value, "map@r": value / 2, "nmi": 0.5, "f1": 0.2, "norm_mean": 3, "norm_cv": 0.1}
                norms = [[step, 1 / step, 3.0, 0.5] for step in (10, 20, 30)]
                runs.append({"cell": cell, "arm": arm, "recipe": recipe, "last": last, "norms": norms})
    runs.append(runs[0] | {"arm": "l2reg", "last": {}, "diverged": "at step 7", "norms": [[1, float("nan"), 1.0, 1.0]]})
    path.write_text(json.dumps({"trials": runs[:3], "runs": runs}))
    return path


def pair_file(path: Path) -> Path:
    """A run of each of three arms: differences without intervals."""
    found = {record["arm"]: record for record in json.loads(results_file(path).read_text())["runs"][:6]}
    for arm, recall in (("none", 0.592), ("sec", 0.647), ("sec-relative", 0.692)):
        found[arm]["last"] |= {"recall@1": recall}
    path.write_text(json.dumps({"runs": list(found.values()), "trials": []}))
    return path


def simclr_file(path: Path, finals: bool = True) -> Path:
    """Table 5: k-NN on the way, the probe at the end, and trials on held-out images that call them test images."""
    records = []
    for arm, base in (("none", 0.7), ("sec", 0.72)):
        for seed in range(2):
            fields = {"seed": str(seed), "data.held_out": "0.1"}
            fields |= {"constraint.eta": "0.25"} if arm == "sec" else {}
            recipe = options.to_dict(find("simclr-cifar10" + "-sec" * (arm == "sec"), fields))
            tests = [{"step": step, "knn": base - 0.2 + step / 1000 + seed / 50} for step in (0, 50, 100)]
            tests[-1] |= {"probe_top1": base + seed / 50, "probe_top5": 0.9, "probe_best_top1": 0.8}
            tests[-1] |= {"norm_mean": 3.0 + seed, "norm_variance": 0.5 + seed, "norm_cv": 0.2}
            record = {"cell": "simclr-cifar10", "arm": arm, "recipe": recipe, "last": tests[-1], "tests": tests}
            norms = [[step, 1 / step, 3.0 + seed, 0.5 + seed] for step in (50, 100)]
            records.append(record | {"tested": "test images, not trained on", "norms": norms})
    runs = [one | {"recipe": one["recipe"] | {"data": one["recipe"]["data"] | {"held_out": 0.0}}} for one in records]
    path.write_text(json.dumps({"trials": records, "runs": runs * finals}))
    return path


def faces_file(path: Path) -> Path:
    """Table 4: two sets of pairs, identification among all distractors and one set, and what the norm foretells."""
    runs = []
    for arm, base in (("none", 0.7), ("sec", 0.72), ("sec-relative", 0.69)):
        for seed in range(2):
            recipe = options.to_dict(find("lfw-cosface" + f"-{arm}" * (arm != "none"), {"seed": str(seed)}))
            value = base + seed / 50
            last = {"accuracy": value, "cfp_fp": value - 0.1, "cfp_ff": value + 0.1, "rank1@singles": 0.3}
            last |= {"rank1@1000": 0.2 + value / 4, "rank1@10000": value / 2, "rank1_norm_auroc": 1 - value}
            for name, step in (("cfp_fp", 0.01), ("cfp_ff", 0.11)):
                last |= {f"{name}_auc": value + step, f"{name}_tar@0.01": value / 3, f"{name}_norm_auroc": value - step}
            last |= {"norm_mean": 3.0, "norm_variance": 0.5, "norm_cv": 0.2}
            runs.append({"cell": "lfw-cosface", "arm": arm, "recipe": recipe, "last": last, "norms": []})
    path.write_text(json.dumps({"trials": [], "runs": runs}))
    return path


def norms_file(path: Path) -> Path:
    """What NormMonitor writes in somebody's loop, of two runs: one whose norms spread, and one with SEC."""
    for spread in (0.6, 0.1):
        generator = torch.Generator().manual_seed(0)
        monitor = NormMonitor(torch.optim.SGD([torch.zeros(1)], lr=0.1), file=path, every=4, constrained=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in range(12):
                draw = torch.randn(30, 9, generator=generator)
                embeddings = (draw[:, :8] * torch.exp(spread * draw[:, 8:])).requires_grad_() * 2
                monitor(embeddings)
                embeddings.square().sum().backward()
                if step % 4 == 3:
                    monitor.probe(embeddings, step)
            with torch.no_grad():
                monitor(embeddings * 1)
            monitor.close()
    return path


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> dict[str, list[Path]]:
    folder = tmp_path_factory.mktemp("runs")
    plain, sec = write_run(folder / "plain", 0.5, 0, eta="0.0", alarms=(3, 17)), write_run(folder / "sec", 0.617, 1)
    table, norms = results_file(folder / "rates_cub200.json"), norms_file(folder / "norms.jsonl")
    arms = ("", "-l2reg", "-sec", "-sec-initial")
    four = [write_run(folder / f"paper-cars196-triplet{arm}", 0.5, seed) for seed, arm in enumerate(arms)]
    found = {"one": [sec], "two": [plain, sec], "four": four, "table": [table], "norms": [norms]}
    found |= {"trials": [simclr_file(folder / "table5_cifar10_backbone=resnet18_cifar.json", finals=False)]}
    found |= {"simclr": [simclr_file(folder / "table5_cifar10.json")]}
    found |= {"faces": [faces_file(folder / "table4_lfw.json")]}
    return found | {"pair": [pair_file(folder / "pair.json")], "flat": [unlabeled(folder / "flat")]}


@pytest.fixture(scope="module")
def pages(sources, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: write_page(paths, folder / f"{name}.html") for name, paths in sources.items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find_browser() is None:
        if os.environ.get("ISOSPHERE_REQUIRE_BROWSER"):
            pytest.fail("ISOSPHERE_REQUIRE_BROWSER is set, but there is no Chromium or Chrome on the PATH")
        pytest.skip("no Chromium or Chrome on the PATH: apt-get install chromium")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


# ---------------------------------------------------------------- numbers


def test_nearest_against_a_loop():
    generator = np.random.default_rng(0)
    embeddings, labels = generator.normal(size=(40, 4)).astype(np.float32), generator.integers(0, 6, 40)
    labels[7] = 99  # a singleton: its errors are not the model's
    is_query = np.arange(40) % 2 == 0
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for asks in (np.ones(40, bool), is_query):
        candidates = np.flatnonzero(asks)
        found = nearest(Embedded(embeddings, labels, [], asks), candidates)
        for row, query in enumerate(candidates):
            others = [i for i in range(40) if i != query and (asks.all() or not asks[i])]
            ranked = sorted(others, key=lambda i: -unit[query] @ unit[i])
            assert found.indices[row].tolist() == ranked[:5]
            assert found.cosines[row] == pytest.approx([unit[query] @ unit[i] for i in ranked[:5]], abs=1e-6)
            right = [unit[query] @ unit[i] for i in others if labels[i] == labels[query]]
            wrong = max(unit[query] @ unit[i] for i in others if labels[i] != labels[query])
            assert found.lead[row] == pytest.approx(wrong - max(right) if right else -np.inf, abs=1e-6)


def test_the_worst_errors_are_those_with_the_greatest_lead():
    sample, worst = chosen(np.array([0.1, -0.2, 0.5, -np.inf, 0.0, 0.3]))
    assert worst == [2, 5, 0, 4] and sample == [0, 1, 2, 3, 4, 5]
    lead = np.random.default_rng(0).normal(size=1000)
    sample, worst = chosen(lead)
    assert len(sample) == 120 and sample[0] == 0 and sample[-1] == 999 and max(np.diff(sample)) <= 9
    assert len(worst) == 80 and set(worst) == set(np.argsort(lead)[-80:].tolist())


def test_the_slope_of_turns_is_that_of_a_power_law(tmp_path):
    norms = np.linspace(1, 5, 30)
    shots = [Snapshot(0, norms, None), Snapshot(5, 2 * norms, 7 * norms**-2.0, 0)]
    shots.append(Snapshot(10, norms, 3 * norms**0.5, 5))
    slopes = turn_slopes(Run("run", tmp_path, snapshots=shots))
    assert [step for step, _ in slopes] == [5, 10] and [slope for _, slope in slopes] == pytest.approx([-2, 0.5])
    assert [step for step, _ in turn_slopes(Run("run", tmp_path, snapshots=shots[::2]))] == [], "it began at step 5"
    alike = [Snapshot(0, np.ones(30), None), Snapshot(5, np.ones(30), norms, 0)]
    assert turn_slopes(Run("run", tmp_path, snapshots=alike)) == []


@pytest.mark.parametrize("old", [False, True])
def test_a_damaged_snapshot_takes_the_slope_after_it_along(old, tmp_path):
    folder = write_run(tmp_path / "run", 0.5, 0)
    for path in sorted((folder / "snapshots").iterdir()) if old else ():
        arrays = dict(np.load(path))
        arrays.pop("since", None)  # as files of older versions
        np.savez(path, **arrays)
    assert [step for step, _ in turn_slopes(read_run(folder, ""))] == [5, 10, 15, 20]
    (folder / "snapshots" / "step-0000010.npz").write_bytes(b"PK")
    assert [step for step, _ in turn_slopes(read_run(folder, ""))] == [5, 20]


def test_histogram_against_a_loop():
    values = np.random.default_rng(0).normal(size=500)
    (first, *_), *found, (last, end) = histogram(values, 0.01)
    width = (values.max() - values.min()) / math.sqrt(500)
    assert end == 0 and (first, last) == pytest.approx((values.min() - width / 2, values.max() + width / 2), abs=width)
    for middle, density in found:
        inside = sum(middle - width / 2 <= value < middle + width / 2 for value in values)
        assert density == pytest.approx(inside / 500 / width)
    assert sum(density for _, density in found) * width == pytest.approx(1)
    assert histogram(np.ones(3), 0.5) == [(0.75, 0.0), (1.0, 2.0), (1.25, 0.0)]
    assert len(histogram(values, 2.0)) - 2 == int((values.max() - values.min()) / 2) + 1


def test_a_narrow_distribution_keeps_its_shape_beside_a_wide_one():
    draw = np.random.default_rng(0).normal(size=(2, 2000))
    found = [("sec", 0, 1 + 0.1 * draw[0]), ("none", 1, np.maximum(0, 12 + 4 * draw[1]))]
    drawn = distribution_chart("norms", "norm", found, log=True)
    chart = json.loads(html.unescape(re.search(r'data-chart="([^"]*)"', drawn)[1]))
    for (_, _, values), one in zip(found, chart["series"], strict=True):
        xs, ys = np.array(one["points"]).T
        assert chart["log_x"] and np.count_nonzero(ys > ys.max() / 10) >= 8
        assert (np.diff(np.log(xs)) * (ys[1:] + ys[:-1]) / 2).sum() == pytest.approx(1, abs=0.05)
        assert f'<td class="n">{np.median(values):.3g}</td>' in drawn


def test_recipes_differ_where_they_differ():
    first, second = (options.to_dict(tiny_recipe("rendered-sec", {"seed": seed})) for seed in (0, 4))
    assert differing([first, first, second]) == {"seed": ["0", "0", "4"]}
    assert differing([first, first | {"rate": 0.1 + 0.2}])["rate"] == ["-", "0.3"], "as it was meant"
    second["loss"] = {"kind": "Other", "novel": [1, None]}
    fields = differing([first, second])
    assert fields["loss.novel"] == ["-", "[1, None]"] and fields["loss.kind"][1] == "Other"


def test_a_chart_needs_two_points_and_lives_with_strange_ones():
    assert line_chart("a", "step", []) == "" and line_chart("a", "step", [Series("run", 0, [(1, 1.0)])]) == ""
    strange = [(0, float("nan")), (1, 0.0), (2, -1.0), (3, 5.0), (4, 5.0)]
    drawn = line_chart("a", "step", [Series("run", 0, strange)], log=True)
    assert "nan" not in drawn and "&quot;points&quot;:[[3.0,5.0],[4.0,5.0]]" in drawn
    tiny = [(step, 1e-15 * step) for step in (2, 3, 4)]  # as the radial share of an angular loss
    assert ">2e-15</text>" in line_chart("a", "step", [Series("run", 0, tiny)], log=True)
    long = Series("run", 0, [(step, 2.0) for step in range(5000)], [(step, step % 3, 4.0) for step in range(5000)])
    assert len(line_chart("a", "step", [long], log=True)) < 20_000, "a band is thinned as its line, and above zero"
    far = line_chart("a", "step", [Series("run", 0, [(0, 1.0), (100_000, 2.0)])])
    assert float(re.search(r'x="([\d.]+)"[^>]*>100000<', far)[1]) < 380, "half of six digits is inside of 400"
    close = line_chart("a", "step", [Series("run", 0, [(0, 99.81), (1, 99.83)])])
    labels = re.findall(r'<text class="end"[^>]*>(.*?)</text>', close)
    assert len(set(labels)) == len(labels) > 2 and "99.82" in labels, "ticks that are not the same do not read the same"


# ---------------------------------------------------------------- sources


def test_a_half_written_run_is_shown_as_far_as_it_goes(tmp_path):
    folder = write_run(tmp_path / "half", 0.5, 0)
    for name in ("result.json", "test_thumbnails.npz"):
        (folder / name).unlink()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:9]) + lines[9][:20])
    (folder / "test_embeddings.npz").write_bytes(b"PK\x03\x04 cut short")
    (folder / "snapshots" / "step-0000020.npz").write_bytes(b"")
    page = write_page([folder], tmp_path / "page.html").read_text()
    for told in (
        "no result.json: the run has not finished", "1 line of metrics.jsonl cannot be read", "unfinished, 8 of 20",
        "test_embeddings.npz cannot be read", "snapshots that cannot be read: step-0000020.npz", "nothing to retrieve",
    ):  # fmt: skip
        assert told in page
    assert ">10.0</td>" in page and "training loss" in page and "Directions" in page  # R@1 of the first evaluation


def test_a_run_without_snapshots_embeddings_or_lines(tmp_path):
    folder = write_run(tmp_path / "bare", 0.5, 0)
    for path in [folder / "metrics.jsonl", folder / "test_embeddings.npz", *(folder / "snapshots").iterdir()]:
        path.unlink()
    page = write_page([folder], tmp_path / "page.html").read_text()
    assert "no recorded directions" in page and "no test_embeddings.npz" in page and "no metrics.jsonl" in page
    assert ">50.0</td>" in page and "Learning curves" not in page and 'id="directions"' not in page


def edited(folder: Path, edit) -> str:
    """The page of the run in a folder after `edit` has changed its lines, each an object."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in edit(lines)))
    page = write_page([folder], folder.parent / "page.html").read_text()
    told = re.search(r"<h3>What is missing</h3><ul>(.*?)</ul>", page)
    return html.unescape(told[1]) if told else ""


def test_a_whole_run_lacks_nothing(tmp_path):
    assert edited(write_run(tmp_path / "run", 0.5, 0), lambda lines: lines) == ""


def test_what_an_older_run_did_not_write_is_told(tmp_path):
    absent = ("norm_min", "norm_max", "lr_proxy_mean", "lr_proxy_cv", "radial_share")

    def older(lines):
        return [{name: value for name, value in line.items() if name not in absent} for line in lines]

    told = edited(write_run(tmp_path / "run", 0.5, 0), older)
    assert told == f"<li>run: no {', '.join(absent)} in its training lines (of an older version?): not charted</li>"


def test_lines_that_are_not_there_are_told(tmp_path):
    folder = write_run(tmp_path / "run", 0.5, 0)
    assert edited(folder, lambda lines: lines[1:2] + lines[-1:]) == (
        "<li>run: fewer than two training lines: no curves of them</li>"
        "<li>run: fewer than two evaluations: no curves of them</li>"
    )
    assert edited(folder, lambda lines: []) == "<li>run: metrics.jsonl is empty: no curves</li>"
    assert ">50.0</td>" in (tmp_path / "page.html").read_text()


def test_values_that_are_no_numbers_are_told_and_the_rest_is_shown(tmp_path):
    folder = write_run(tmp_path / "run", 0.5, 0)

    def odd(lines):
        lines[3] |= {"loss": float("nan"), "norm_mean": "x"}
        lines[4] |= {"loss": None}
        return lines

    told = "<li>run: left out of metrics.jsonl, because it is no finite number: {}</li>"
    assert edited(folder, odd) == told.format("loss (first in step 3), norm_mean (first in step 3)")
    page = (tmp_path / "page.html").read_text()
    chart = re.search(r'aria-label="training loss[^"]*"[^>]*data-chart="([^"]*)"', page)[1]
    assert len(json.loads(html.unescape(chart))["series"][0]["points"]) == 18
    result = json.loads((folder / "result.json").read_text())
    for last, words in (
        (None, "result.json has no numbers of the last evaluation: those of metrics.jsonl are shown"),
        (result["last"] | {"nmi": "high"}, "left out of result.json, because it is no finite number: nmi"),
    ):
        (folder / "result.json").write_text(json.dumps(result | {"last": last}))
        assert f"<li>run: {words}</li>" in edited(folder, lambda lines: lines)
        assert ">50.0</td>" in (tmp_path / "page.html").read_text()


def test_a_run_without_numbers_in_a_table_is_not_said_to_have_diverged(tmp_path):
    path = results_file(tmp_path / "ours.json")
    held = json.loads(path.read_text())
    held["runs"][0]["last"] = None
    path.write_text(json.dumps(held))
    page = write_page([path], tmp_path / "page.html").read_text()
    assert ">1 (1 without numbers)</td>" in page and ">0 (1 diverged)</td>" in page


def test_an_unfinished_run_of_epochs_is_compared_at_its_own_step(tmp_path):
    plain, sec = write_run(tmp_path / "plain", 0.5, 0, eta="0.0"), write_run(tmp_path / "sec", 0.6, 1)
    (sec / "result.json").unlink()
    lines = (sec / "metrics.jsonl").read_text().splitlines(keepends=True)
    (sec / "metrics.jsonl").write_text("".join(lines[:11]))
    page = write_page([plain, sec], tmp_path / "page.html").read_text()
    assert "not 0.0): evaluated in step 0, not 20; R@1 10.0 %, not 50.0" in page and "unfinished, 10 of 20<" in page
    recipe = json.loads((sec / "recipe.json").read_text())
    recipe["loop"] |= {"unit": "epochs", "steps": 3}
    (sec / "recipe.json").write_text(json.dumps(recipe))
    assert "unfinished, 10 steps of 3 epochs<" in write_page([sec], tmp_path / "page.html").read_text()


def test_an_unfinished_run_is_as_far_as_its_lines_or_its_checkpoint(tmp_path):
    folder = write_run(tmp_path / "run", 0.5, 0)
    (folder / "result.json").unlink()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    for kept, saved, told in ((1, 10, 10), (1, None, 0), (13, 10, 12)):  # it was stopped before its first line
        (folder / "metrics.jsonl").write_text("".join(lines[:kept]))
        (folder / "checkpoint.pt").unlink(missing_ok=True)
        if saved:
            torch.save({"step": saved, "model": {"weight": torch.zeros(3)}}, folder / "checkpoint.pt")
        assert f"unfinished, {told} of 20<" in write_page([folder], tmp_path / "page.html").read_text()
    (folder / "checkpoint.pt").write_bytes(b"cut short")
    page = write_page([folder], tmp_path / "page.html").read_text()
    assert "unfinished, 12 of 20<" in page and "checkpoint.pt cannot be read" in page


def test_runs_seen_at_other_steps_are_told_so(pages, tmp_path):
    for words in ("last snapshot (step 20): density", "until the last look (steps 15 to 20): density"):
        assert words in pages["two"].read_text()
    plain, sec = write_run(tmp_path / "plain", 0.5, 0, eta="0.0"), write_run(tmp_path / "sec", 0.6, 1)
    for step in (15, 20):
        (sec / "snapshots" / f"step-{step:07d}.npz").unlink()
    page = write_page([plain, sec], tmp_path / "page.html").read_text()
    assert "last snapshot (plain: step 20, sec: step 10): density" in page
    assert "until the last look (plain: steps 15 to 20, sec: steps 5 to 10): density" in page


def colors(page: str) -> list[dict[str, str]]:
    """What each legend says: the color of each name."""
    found = re.findall(r'<ul class="legend">(.*?)</ul>', page)
    return [{name: c for c, name in re.findall(r'class="(s\d)">.*?</svg>(.*?)</li>', one)} for one in found]


def test_an_arm_has_one_color_in_all_tables_and_that_of_its_run(tmp_path):
    first, second = results_file(tmp_path / "first.json"), results_file(tmp_path / "second.json")
    held = json.loads(second.read_text())
    held["runs"] = [record for record in held["runs"][::-1] if record["arm"] != "none"]
    second.write_text(json.dumps(held))
    one, other = colors(write_page([first, second], tmp_path / "page.html").read_text())
    assert one == {"no constraint": "s1", "SEC": "s0", "relative SEC": "s2", "L2-reg": "s4"}, "as in the figures"
    assert list(other) == ["L2-reg", "relative SEC", "SEC"] and other == {arm: one[arm] for arm in other}
    runs = [write_run(tmp_path / "sole", 0.5, 0), write_run(tmp_path / "known", 0.5, 0)]
    recipe = next(record["recipe"] for record in held["runs"] if record["arm"] == "sec-relative")
    (runs[1] / "recipe.json").write_text(json.dumps(recipe | {"seed": 7}))
    page = write_page([*runs, first], tmp_path / "page.html").read_text()
    *ofruns, table = colors(page)
    assert all(legend == {"sole": "s0", "known": "s1"} for legend in ofruns) and len(ofruns) == 3
    assert table == {"no constraint": "s2", "SEC": "s3", "relative SEC": "s1", "L2-reg": "s4"}
    marks = re.findall(r'<g class="(s\d)"><title>([\w -]+): ', page)
    assert {name for _, name in marks} == {"no constraint", "SEC", "relative SEC"}
    assert all(table[name] == color for color, name in marks)


def test_a_constraint_has_the_hue_that_it_has_in_the_figures(tmp_path):
    css = (Path(isosphere.page.__file__).parent / "page.css").read_text()
    hue = lambda color: colorsys.rgb_to_hsv(*(int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)))[0]  # noqa: E731
    for arm, style in ARM_STYLES.items():
        for color in re.search(rf"\.s{style % 8} .*\((#\w+), (#\w+)\)", css).groups() * (arm != "balanced"):
            apart = abs(hue(color) - hue(ARM_COLORS[arm]))
            assert min(apart, 1 - apart) < 0.1, (arm, color)
    assert ARM_STYLES.keys() == ARM_COLORS.keys() and len(set(ARM_STYLES.values())) == len(ARM_STYLES)
    marks = {arm: style % len(MARKS) for arm, style in ARM_STYLES.items()}
    assert marks["sec"] != marks["sec-ema"] and marks["sec-initial"] != marks["sec-fixed"], "near in color"
    plain, sec = write_run(tmp_path / "plain", 0.5, 0, eta="0.0"), write_run(tmp_path / "sec", 0.5, 1)
    *ofruns, table = colors(write_page([sec, plain, pair_file(tmp_path / "t.json")], tmp_path / "p.html").read_text())
    assert ofruns == [{"sec": "s0", "plain": "s1"}] * 3
    assert table == {"no constraint": "s1", "SEC": "s0", "relative SEC": "s2"}


def test_a_recipe_of_another_version_is_shown_as_it_stands(tmp_path):
    folder = write_run(tmp_path / "old", 0.5, 0)
    recipe = json.loads((folder / "recipe.json").read_text())
    recipe["loop"]["wobble"] = 7
    (folder / "recipe.json").write_text(json.dumps(recipe))
    other = write_run(tmp_path / "new", 0.5, 1)
    page = write_page([folder, other], tmp_path / "page.html").read_text()
    assert "of another version of isosphere (loop.wobble: no such field" in page
    assert re.search(r"<span>loop\.wobble</span></th><td>7</td><td>-</td>", page)
    recipe |= {"data": None, "loop": 5}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    page = write_page([folder], tmp_path / "page.html").read_text()
    assert "of another version of isosphere (data: expected a group" in page and ">none</td>" in page


def test_metrics_of_other_tasks_are_shown_by_their_own_names(tmp_path):
    path = results_file(tmp_path / "ours.json")
    held = json.loads(path.read_text())
    for record in held["runs"]:
        record["last"] = {"odd": record["last"]["recall@1"], "norm_mean": 2.0} if record["last"] else {}
    path.write_text(json.dumps(held))
    page = write_page([path], tmp_path / "page.html").read_text()
    assert "never seen in training" not in page and '<th scope="col" class="n">odd</th>' in page
    assert '<span>sec - none</span></th><td class="w">odd</td><td class="n">+2.0</td>' in page


def drawn(page: str) -> dict[str, dict[str, list[list[float]]]]:
    """The lines of every chart by its title and their names."""
    found = re.findall(r'<figcaption>([^<]*)</figcaption><svg[^>]*data-chart="([^"]*)"', page)
    charts = {title: json.loads(html.unescape(data))["series"] for title, data in found}
    return {title: {one["name"]: one["points"] for one in series} for title, series in charts.items()}


def test_a_table_leads_with_what_it_is_judged_by_and_draws_what_was_watched(pages, tmp_path):
    page = pages["simclr"].read_text()
    assert "<figcaption>probe top-1, %: mean, least and greatest of the seeds</figcaption>" in page
    assert "share of pairs judged right" not in page and "share of pairs judged right" in pages["faces"].read_text()
    assert "71.0 ± 1.4" in page and "73.0 ± 1.4" in page and "k-NN, %: mean" not in page
    assert "SEC against no constraint, mean over 2 pairs of runs that differ in it alone: probe top-1 73.0 %" in page
    assert page.index('"n">probe top-1</th>') < page.index('"n">k-NN</th>')
    row = '<td class="n">2</td><td class="n">73.0 ± 1.4</td>'
    assert row in page and '<td class="n">3.5</td><td class="n">1</td><td class="n">0.2</td>' in page
    courses = {"no constraint": [[0, 51.0], [50, 56.0], [100, 61.0]], "SEC": [[0, 53.0], [50, 58.0], [100, 63.0]]}
    charts = drawn(page)
    assert charts["k-NN in test, %"] == courses and not any("probe" in title for title in charts)
    assert charts["mean norm, log axis"]["SEC"] == [[50, 3.5], [100, 3.5]]
    assert charts["variance of the norms, log axis"]["SEC"] == [[50, 1.0], [100, 1.0]]

    held = json.loads(simclr_file(tmp_path / "faces.json").read_text())
    for record in held["runs"]:
        record["last"] = {"accuracy": record["last"]["probe_top1"], "cfp_fp": 0.5}
        record["tests"] = [{"step": test["step"], "accuracy": test["knn"], "cfp_fp": 0.5} for test in record["tests"]]
    (tmp_path / "faces.json").write_text(json.dumps(held))
    page = write_page([tmp_path / "faces.json"], tmp_path / "page.html").read_text()
    assert drawn(page)["accuracy in test, %"] == courses and "<figcaption>accuracy, %: mean" in page
    for record in held["runs"]:
        record["tests"] = [{"recall@1" if k == "accuracy" else k: v for k, v in t.items()} for t in record["tests"]]
    (tmp_path / "faces.json").write_text(json.dumps(held))
    page = write_page([tmp_path / "faces.json"], tmp_path / "page.html").read_text()
    assert drawn(page)["R@1 in test, %"] == courses


def test_a_table_shows_how_far_directions_turned_where_its_runs_tell(pages, tmp_path):
    assert pages["table"].read_text().count("No directions recorded") == 1
    held = json.loads(results_file(tmp_path / "turns.json").read_text())
    for record in held["runs"]:
        seed, more = record["recipe"]["seed"], 5 * (record["arm"] == "none")
        turns = [(10, 0, 40.0 + 2 * seed + more, 9.0), (20, 10, 20.0 + 2 * seed, 4.0)]
        keys = ("step", "since", "turn_mean", "turn_variance")
        record["turns"] = [dict(zip(keys, turn, strict=True)) | {"turn_slope": -0.5} for turn in turns]
    held["runs"][0]["turns"] = []  # as of a seed that took no snapshots
    (tmp_path / "turns.json").write_text(json.dumps(held))
    page = write_page([tmp_path / "turns.json"], tmp_path / "page.html").read_text()
    assert "No directions recorded" not in page and page.count("directions of cub200-ms-lr") == 2
    first = drawn(page.split("directions of cub200-ms-lr")[1])
    turned = first["mean turn since the snapshot before, degrees"]
    assert turned["SEC"] == [[10, 42.0], [20, 22.0]] and turned["no constraint"] == [[10, 46.0], [20, 21.0]]
    assert first["variance of the turns, degrees², log axis"]["SEC"] == [[10, 9.0], [20, 4.0]]


def headings(page: str) -> list[list[str]]:
    """Those of every table."""
    rows = re.findall(r"<thead><tr>(.*?)</tr>", page.replace("\u00a0", " "))
    return [re.findall(r"<th[^>]*>(.*?)</th>", row) for row in rows]


def test_a_table_of_faces_is_headed_by_words_that_are_explained(pages):
    page = pages["faces"].read_text()
    first, second, *others = headings(page)
    ranks = ["rank 1 of 1,000", "rank 1 of 10,000", "rank 1 among singles"]
    assert first[2:9] == ["seeds", "accuracy", "CFP-FP", "CFP-FF", *ranks]
    sets = ("CFP-FP", "CFP-FF")
    told = [f"{name} {kind}" for kind in ("AUC", "TAR at FAR 1 %", "norm AUROC") for name in sets]
    assert second == ["cell", "arm", *told, "rank 1 norm AUROC"]
    assert not re.search("_auroc|tar@|_auc", re.search("<main.*</main>", page, re.DOTALL)[0])
    assert "1 % of the pairs of two people" in page and "the wrong one has the lower norm; 50 is chance" in page
    row = "".join(f'<td class="n">{value} ± {spread}</td>' for value, spread in (
        (72.0, 1.4), (82.0, 1.4), (23.7, 0.5), (23.7, 0.5), (70.0, 1.4), (60.0, 1.4), (29.0, 1.4)
    ))  # fmt: skip
    assert f'<td class="w">none</td>{row}</tr>' in page
    papers = [head for head in others if "LFW" in head]
    assert papers and all(head[:4] == ["arm", "LFW", "AgeDB-30", "CFP-FP"] for head in papers)


def test_differences_of_faces_are_told_of_each_set_of_rank_1_and_of_the_norm(pages):
    page = pages["faces"].read_text()
    rows = dict(re.findall(r'<span>sec - none</span></th><td class="w">([^<]*)</td><td class="n">([^<]*)<', page))
    assert rows == {
        "accuracy": "+2.0", "CFP-FP": "+2.0", "CFP-FF": "+2.0", "rank 1 of 10,000": "+1.0",
        "CFP-FP norm AUROC": "+2.0", "CFP-FF norm AUROC": "+2.0", "rank 1 norm AUROC": "-2.0",
    }  # fmt: skip
    charts = re.findall(r'<figcaption>differences([^<]*)</figcaption><svg[^>]*aria-label="([^"]*)"', page)
    assert [title.split(" in points")[0] for title, _ in charts] == ["", " of the norm&#x27;s AUROC"]
    assert "rank 1 of 10,000, less no constraint, SEC: +1.0" in charts[0][1] and "AUROC" not in charts[0][1]
    assert charts[1][1].count("norm AUROC, less no constraint, SEC: ") == 3


def test_a_run_on_faces_is_headed_by_words_too(tmp_path):
    folder = write_run(tmp_path / "run", 0.5, 0)
    last = json.loads(faces_file(tmp_path / "faces.json").read_text())["runs"][0]["last"]
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"last": last, "oracle": last}))
    page = write_page([folder], tmp_path / "page.html").read_text()
    first, second, *_ = headings(page)
    assert first[2:5] == ["accuracy", "CFP-FP", "CFP-FF"] and second[:2] == ["run", "CFP-FP AUC"]
    assert '<span>run</span></th><td class="n">71.0</td>' in page and "lower norm; 50 is chance" in page


def test_trials_say_what_was_held_out_whatever_they_took_it_for(pages, tmp_path):
    page = pages["trials"].read_text()
    assert "tuning trials, judged on held-out training images; metrics in %" in page and "no final run has" in page
    assert "not trained on" not in page and "classes" not in re.search("<main.*</main>", page, re.DOTALL)[0]
    assert '<td class="w">sec</td><td class="n">72.0</td>' in page
    held = json.loads(simclr_file(tmp_path / "table3.json").read_text())
    for record in held["trials"]:
        record["recipe"] = options.to_dict(find("cub200-ms", {"data.held_out": "20"}))
    (tmp_path / "table3.json").write_text(json.dumps(held))
    page = write_page([tmp_path / "table3.json"], tmp_path / "page.html").read_text()
    assert "judged on held-out training classes; metrics in %" in page
    page = write_page([results_file(tmp_path / "other.json")], tmp_path / "page.html").read_text()
    assert "<figcaption>tuning trials; metrics in %</figcaption>" in page, "nobody knows"


def test_trials_are_charted_by_learning_rate_and_over_steps(tmp_path):
    held = json.loads(simclr_file(tmp_path / "trials.json", finals=False).read_text())
    trials = []
    for arm, eta, decay in (("none", 0.0, 0.1), ("none", 0.0, 0.2), ("sec", 0.25, 0.1), ("sec", 1.0, 0.1)):
        for record in held["trials"]:
            for rate in (0.5, 2.0) if record["arm"] == arm else ():
                one = json.loads(json.dumps(record))
                one["recipe"]["optimizer"] |= {"lr": rate, "weight_decay": decay}
                one["recipe"]["constraint"]["eta"] = eta
                one["last"]["probe_top1"] += rate / 100 + eta / 10
                trials.append(one)
    (tmp_path / "trials.json").write_text(json.dumps({"trials": trials, "runs": []}))
    page = write_page([tmp_path / "trials.json"], tmp_path / "page.html").read_text()
    charts = drawn(page)
    plain = "no constraint, optimizer.weight_decay"
    scores = charts["probe top-1, %, by learning rate"]
    assert list(scores) == [f"{plain} 0.1", f"{plain} 0.2", "SEC (η 0.25)", "SEC (η 1)"]
    assert scores["SEC (η 1)"] == [[0.5, 83.5], [2, 85.0]] and scores[f"{plain} 0.2"] == [[0.5, 71.5], [2, 73.0]]
    course = charts["k-NN on the way, %, learning rate 2"]
    assert course.keys() == scores.keys() and course["SEC (η 1)"] == [[0, 53.0], [50, 58.0], [100, 63.0]]
    (shown,) = colors(page)
    assert list(shown.values()) == ["s1", "s1", "s0", "s0"], "an arm's lines have its color"
    looks = re.findall(r'class="s\d">(<path.*?)</svg>', re.search('<ul class="legend">(.*?)</ul>', page)[1])
    assert len(set(looks[:2])) == 2 and len(set(looks[2:])) == 2, "and patterns of their own"


def test_a_run_that_was_a_trial_is_not_headed_by_test_classes(tmp_path):
    folder = write_run(tmp_path / "run", 0.5, 0)
    recipe = options.to_dict(find("cub200-ms", {"data.held_out": "20"}))
    result = json.loads((folder / "result.json").read_text()) | {"tested": "test classes, never seen in training"}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    (folder / "result.json").write_text(json.dumps(result | {"recipe": recipe}))
    page = write_page([folder], tmp_path / "page.html").read_text()
    assert "held-out training classes; metrics in %" in page and "never seen in training" not in page
    assert "norms of held-out training classes: density" in page and "norms of test images" not in page


def test_a_run_without_the_probe_is_compared_by_what_both_have(tmp_path):
    plain, sec = write_run(tmp_path / "plain", 0.5, 0, eta="0.0"), write_run(tmp_path / "sec", 0.6, 1)
    for folder, last in ((plain, {"knn": 0.5}), (sec, {"knn": 0.6, "probe_top1": 0.7})):
        result = json.loads((folder / "result.json").read_text())
        (folder / "result.json").write_text(json.dumps(result | {"last": last, "oracle": last}))
    assert "k-NN 60.0 %, not 50.0 (+10.0 points)" in write_page([plain, sec], tmp_path / "page.html").read_text()


def test_sentences_tell_the_main_metrics_of_every_task():
    faces = ("lfw_auc", "lfw", "accuracy", "rank1@1000", "rank1@10000", "rank1@singles", "norm_mean")
    assert main_metrics(faces) == {"accuracy": "accuracy", "rank1@10000": "rank 1 of 10,000"}
    simclr = ("knn", "probe_top1@1", "probe_top1", "probe_top5", "probe_best_top1")
    assert main_metrics(simclr) == {"probe_top1": "probe top-1", "knn": "k-NN"}
    assert list(main_metrics(("f1", "nmi", "recall@2", "map@r", "recall@1"))) == ["recall@1", "map@r", "nmi", "f1"]
    assert list(main_metrics(("mine", "other"))) == ["mine"]


def test_what_is_no_source_is_refused_in_a_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "none.json").write_text('{"runs": [], "trials": []}')
    out = tmp_path / "page.html"
    (tmp_path / "e.npy").write_bytes(b"\x93NUMPY" + bytes(100_000))
    for path, said in (("empty", "not a run folder"), ("list.json", "not a file of results"), ("none.json", "no runs"),
                       ("e.npy", "not a file of results .*can't decode byte 0x93")):  # fmt: skip
        with pytest.raises(ValueError, match=said) as caught:
            write_page([tmp_path / path], out)
        assert len(str(caught.value)) < 400, "without what the file holds"
    with pytest.raises(FileNotFoundError, match="no such run folder or results file"):
        write_page([tmp_path / "absent"], out)
    with pytest.raises(ValueError, match="name a run folder"):
        write_page([], out)
    with pytest.raises(ValueError, match="a file in a folder that exists"):
        write_page([tmp_path / "empty"], tmp_path / "absent" / "page.html")
    assert not out.exists()


def test_runs_of_one_name_keep_apart_and_one_given_twice_counts_once(tmp_path):
    twins = [write_run(tmp_path / name / "run", 0.5, seed) for seed, name in enumerate("ab")]
    page = write_page([*twins, twins[0] / "..", twins[0]][:2] + [twins[0]], tmp_path / "page.html").read_text()
    assert '<div class="names"><p>a/run, b/run</p></div>' in page and "2 runs compared" in page


def test_images_come_from_paths_too_and_galleries_of_other_test_sets_stand_apart(tmp_path):
    first, second = write_run(tmp_path / "first", 0.5, 0), write_run(tmp_path / "second", 0.5, 1, per_class=4)
    for folder in (first, second):
        (folder / "test_thumbnails.npz").unlink()
    arrays = dict(np.load(first / "test_embeddings.npz"))
    del arrays["classes"]
    np.savez(first / "test_embeddings.npz", **arrays)
    paths = []
    for number, label in enumerate(arrays["labels"]):
        path = tmp_path / "photos" / f"bird{label}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (300, 200), number).save(path)
        paths.append(str(path))
    (first / "test_paths.txt").write_text("\n".join(paths) + "\n")
    (second / "test_paths.txt").write_text("one line\n")
    page = write_page([first, second], tmp_path / "page.html").read_text()
    (group,) = json.loads(re.search(r'id="galleries">(.*?)</script>', page)[1])
    assert set(group["names"].values()) == {f"bird{label}" for label in range(len(CLASSES))}
    assert "second&#x27;s test_paths.txt cannot be used: it has 1 lines for 32 embeddings" in page
    os.remove(paths[0])
    assert "because images cannot be read" in write_page([first], tmp_path / "page.html").read_text()


def test_a_monitors_file_is_a_source_of_its_own(sources, pages, tmp_path):
    """Its runs apart, with alarms, norms and turns in degrees, slopes as the monitor told them."""
    page, (path,) = pages["norms"].read_text(), sources["norms"]
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert "norms.jsonl, run 1 of 2" in page and "norms.jsonl, run 2 of 2" in page and "2 runs compared" in page
    alarm = next(record for record in records if record["kind"] == "alarm")
    assert f"norms.jsonl, run 1 of 2, step {alarm['step']}: {alarm['text']}" in page
    assert "norms of the last training batch" in page and "watched, 12 steps" in page
    first, second = read_records(path, "norms")
    assert second.last["norm_cv"] == [record for record in records if record["kind"] == "train"][-1]["norm_cv"]
    probes = [record for record in records if record["kind"] == "probe"]
    assert turn_slopes(first) + turn_slopes(second) == [(record["step"], record["turn_slope"]) for record in probes]
    shots = first.snapshots + second.snapshots
    assert [shot.since for shot in shots] == [3, 7, 3, 7]
    for shot, record in zip(shots, probes, strict=True):
        assert np.radians(shot.angles).mean() == pytest.approx(record["turn_mean"], rel=1e-3)
    titles = re.findall(r'<figure class="chart"><figcaption>(.*?)</figcaption>', page)
    assert {
        "mean norm, and least to greatest, log axis", "turn since the last look, degrees: median, 10 to 90 %",
        "learning rate of directions (proxy), mean, log axis", "radial share of the squared gradient, log axis",
    } <= set(titles)  # fmt: skip
    assert not [title for title in titles if "turn_" in title or "in test" in title]
    sections = re.findall(r'<section id="(\w+)">', page)
    assert sections == ["alarms", "metrics", "norms", "directions"], "there is nothing to tell of recipes or retrievals"
    folder = write_run(tmp_path / "run", 0.5, 0)
    page = write_page([folder, path], tmp_path / "page.html").read_text()
    assert "norms.jsonl, run 1 of 2, norms.jsonl, run 2 of 2: norms of the last training batch" in page
    assert "3 runs compared" in page and 'id="recipes"' in page and "watched, 12 steps" in page


def test_what_is_odd_about_the_images_is_said_once_of_all_runs_it_is_true_of(tmp_path):
    runs = [write_run(tmp_path / name, 0.5, seed) for seed, name in enumerate("abc")]
    for run, lacks in zip(runs, ("15 images", "15 images", ""), strict=True):
        result = json.loads((run / "result.json").read_text())
        result["deviation"], result["last"]["singletons"] = lacks, 2
        (run / "result.json").write_text(json.dumps(result))
    page = write_page(runs, tmp_path / "page.html").read_text()
    assert page.count("of the data: ") == 1 and "a, b: of the data: 15 images" in page
    assert page.count("2 queries have no other image") == 1 and "all runs: 2 queries have no other image" in page
    assert "the runs are of different images" not in page
    recipe = json.loads((runs[1] / "recipe.json").read_text())
    (runs[1] / "recipe.json").write_text(json.dumps(recipe | {"data": {"kind": "Folder", "root": "a/cups"}}))
    page = write_page(runs, tmp_path / "page.html").read_text()
    assert "the runs are of different images, so their metrics do not compare: " in page and ", cups</li>" in page


def test_runs_that_differ_in_the_constraint_alone_are_compared_in_words(tmp_path):
    plain, sec = write_run(tmp_path / "plain", 0.5, 0, eta="0.0"), write_run(tmp_path / "sec", 0.618, 1)
    last = "snapshots/step-0000020.npz"
    held = np.load(sec / last)
    np.savez(sec / last, **{**held, "angles": 2 * held["norms"]})
    turns = [np.load(folder / last)["angles"].astype(float).var() for folder in (sec, plain)]
    told = (
        "sec against plain, differing in the constraint alone (constraint.eta 0.1, not 0.0): R@1 61.8 %, not 50.0 "
        "(+11.8 points); MAP@R 30.9, not 25.0 (+5.9); NMI 50.0, not 50.0 (+0.0); F1 25.0, not 25.0 (+0.0); "
        "spread of the norms (c.v.) 0.1, not 0.125; "
        f"variance of the turns {turns[0]:.3g} degrees², not {turns[1]:.3g} (steps 15 to 20); "
        "slope of log turn by log norm 1, not -1."
    )
    page = write_page([plain, sec], tmp_path / "page.html").read_text()
    assert told in page and "This is one seed, at one learning rate for both: others may say otherwise." in page
    recipe = json.loads((sec / "recipe.json").read_text())
    recipe["loop"]["log_every"], recipe["claim"] = 3, "another"
    (sec / "recipe.json").write_text(json.dumps(recipe))
    assert told in write_page([plain, sec], tmp_path / "page.html").read_text(), "how often is written changes nothing"
    recipe["seed"] = 9
    (sec / "recipe.json").write_text(json.dumps(recipe))
    assert "in the constraint alone" not in write_page([plain, sec], tmp_path / "page.html").read_text()


def test_pairs_of_several_seeds_have_a_mean(tmp_path):
    runs = []
    for seed, recalls in ((3, (0.5, 0.6)), (4, (0.4, 0.44))):
        for eta, recall in zip(("0.0", "0.1"), recalls, strict=True):
            runs.append(write_run(tmp_path / f"{eta}-{seed}", recall, 0, eta=eta))
            recipe = json.loads((runs[-1] / "recipe.json").read_text())
            (runs[-1] / "recipe.json").write_text(json.dumps(recipe | {"seed": seed}))
    page = write_page(runs, tmp_path / "page.html").read_text()
    assert page.count("differing in the constraint alone") == 2 and "This is one seed" not in page
    told = "Mean of the 2 pairs that differ so (constraint.eta 0.1, not 0.0): R@1 52.0 %, not 45.0 (+7.0 points)"
    assert told in page


def test_a_run_that_ends_below_its_untrained_network_is_told(tmp_path):
    better, worse = write_run(tmp_path / "better", 0.5, 0), write_run(tmp_path / "worse", 0.05, 1)
    page = write_page([better, worse], tmp_path / "page.html").read_text()
    assert "<li>worse: R@1 is below that of the untrained network (10.0 %)" in page
    assert page.count("untrained network") == 1


def test_a_table_of_learning_rates_has_a_chart_of_them_and_words(pages, tmp_path):
    page = pages["table"].read_text()
    assert (
        "relative SEC against no constraint, mean over 4 pairs of runs that differ in it alone: R@1 63.5 %, not 60.5 "
        "(+3.0 points); MAP@R 31.8, not 30.2 (+1.5); NMI 50.0, not 50.0 (+0.0); F1 20.0, not 20.0 (+0.0); "
        "spread of the norms (c.v.) 0.1, not 0.1."
    ) in page
    label = r'aria-label="(R@1, %, by learning rate[^"]*)"[^>]*data-chart="([^"]*)"'
    told, data = re.search(label, page).groups()
    chart = json.loads(html.unescape(data))
    lines = {one["name"]: one["points"] for one in chart["series"]}
    wanted = {"no constraint": 60.5, "SEC": 62.5, "relative SEC": 63.5}
    assert lines == {arm: [[1e-05, value], [0.0002, value]] for arm, value in wanted.items()}
    assert chart["log_x"] and chart["x"] == pytest.approx([1e-05 / 1.2, 0.0002 * 1.2])
    held = json.loads(results_file(tmp_path / "other.json").read_text())
    next(record for record in held["runs"] if record["arm"] == "sec")["recipe"]["model"]["dim"] += 1
    (tmp_path / "other.json").write_text(json.dumps(held))
    page = write_page([tmp_path / "other.json"], tmp_path / "page.html").read_text()
    assert "<li>SEC against no constraint, mean over 3 pairs of runs (of 4) that differ in it alone: R@1" in page
    for number, record in enumerate(held["runs"]):
        record["recipe"]["model"]["dim"] += number
    (tmp_path / "other.json").write_text(json.dumps(held))
    page = write_page([tmp_path / "other.json"], tmp_path / "page.html").read_text()
    assert "by learning rate" not in page and "in it alone" not in page
    assert "<li>SEC against no constraint: their runs differ in model.dim too, so nothing is said.</li>" in page


def test_names_beyond_four_are_folded(tmp_path):
    runs = [write_run(tmp_path / f"{'long-' * 12}{seed}", 0.5, seed) for seed in range(6)]
    page = write_page(runs, tmp_path / "page.html").read_text()
    names = [run.name for run in runs]
    first, others = ", ".join(names[:4]), ", ".join(names[4:])
    assert f"<p>{first}</p><details><summary>and 2 more</summary><p>{others}</p></details>" in page
    assert f"<title>{first} and 2 more - isosphere</title>" in page


def test_an_image_alone_in_its_class_is_neither_right_nor_wrong(tmp_path):
    folder = write_run(tmp_path / "run", 0.5, 0, per_class=1)
    page = write_page([folder], tmp_path / "page.html").read_text()
    (group,) = json.loads(re.search(r'id="galleries">(.*?)</script>', page)[1])
    assert all(query["alone"] and query["worst"] == -1 for query in group["queries"])
    assert "8 of them have no other image of their class: none can be right or wrong" in page
    fallback = re.search("<noscript>(.*?)</noscript>", page, re.DOTALL)[1]
    assert "(no other image of its class)" in fallback and "(wrong)" not in fallback


def unlabeled(folder: Path) -> Path:
    """A run on a flat folder: one class, and nothing measured but the norms."""
    write_run(folder, 0.5, 0)
    arrays = dict(np.load(folder / "test_embeddings.npz"))
    arrays |= {"labels": np.zeros(len(arrays["labels"]), int), "classes": np.array(["photos"])}
    np.savez(folder / "test_embeddings.npz", **arrays)
    norms = {"norm_mean": 4.0, "norm_variance": 0.25, "norm_cv": 0.125}
    result = json.loads((folder / "result.json").read_text())
    result |= {"last": norms, "oracle": norms, "tested": "the images trained on"}
    (folder / "result.json").write_text(json.dumps(result))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()[1:-1]]
    lines += [{"step": step, "kind": "test"} | norms for step in (0, 20)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_images_without_labels_are_neither_right_nor_wrong_nor_test_images(tmp_path):
    page = write_page([unlabeled(tmp_path / "run")], tmp_path / "page.html").read_text()
    assert "norms of the images trained on" in page and "not trained on" not in page
    titles = re.findall(r'<figure class="chart"><figcaption>(.*?)</figcaption>', page)
    assert "norms of the images trained on: density, log axis" in titles
    words = re.sub(r"<[^>]*>", " ", re.search(r"<main.*?<noscript>", page, re.DOTALL)[0])
    assert "Metrics" in words and not re.search(r"\btest", words, re.IGNORECASE), "nothing was tested"
    assert "The images have no labels: none is right or wrong." in page and "worst errors of" not in page
    fallback = re.search("<noscript>(.*?)</noscript>", page, re.DOTALL)[1]
    assert "photos (no labels)" in fallback and "(right)" not in fallback and "(wrong)" not in fallback


def test_the_caption_is_what_the_run_says_was_tested(tmp_path):
    folder = write_run(tmp_path / "run", 0.5, 0)
    assert "test classes, never seen in training; metrics in %" in write_page([folder], tmp_path / "p.html").read_text()
    result = json.loads((folder / "result.json").read_text())
    result["tested"] = "test images; 3 of 5 classes were trained on"
    (folder / "result.json").write_text(json.dumps(result))
    page = write_page([folder], tmp_path / "p.html").read_text()
    assert "3 of 5 classes were trained on; metrics in %" in page and "test classes, never seen" not in page


def test_one_pair_of_runs_has_no_interval(pages):
    page = pages["pair"].read_text()
    row = '<span>sec - none</span></th><td class="w">R@1</td><td class="n">+5.5</td><td class="n">-</td>'
    assert "constraint, one pair of runs that differ in it alone: R@1" in page and "mean over one" not in page
    assert row + '<td class="n">-</td>' in page and "+5.5 (one pair)" in page and "95 % intervals" not in page
    page = pages["simclr"].read_text()
    assert "SEC: +2.0 (2 pairs)" in page and "95 % intervals" not in page, "nor have two"
    assert "95 % intervals" in pages["table"].read_text()


def test_names_of_files_that_are_not_utf8_are_shown(tmp_path):
    folder = write_run(tmp_path / "run", 0.5, 0)
    (folder / "test_thumbnails.npz").unlink()
    arrays = dict(np.load(folder / "test_embeddings.npz"))
    arrays["classes"] = np.array(["caf\udce9", *CLASSES[1:]])
    np.savez(folder / "test_embeddings.npz", **arrays)
    file = tmp_path / b"caf\xe9.png".decode(errors="surrogateescape")
    Image.new("L", (30, 20), 9).save(file, "PNG")
    (folder / "test_paths.txt").write_bytes(b"\n".join([bytes(file)] * len(arrays["labels"])))
    page = write_page([folder], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "caf? (" in re.search("<noscript>(.*?)</noscript>", page, re.DOTALL)[1]


@pytest.mark.parametrize("root", ["photos", "photos/all.csv", "absolute"])
def test_images_are_found_from_any_directory(root, tmp_path, monkeypatch):
    """Below data.root, here or where the run folder is; older files have paths as they were given to training."""
    folder = write_run(tmp_path / "project" / "runs" / "run", 0.5, 0, per_class=1)
    (folder / "test_thumbnails.npz").unlink()
    recipe = json.loads((folder / "recipe.json").read_text())
    place = str(tmp_path / "project" / "photos") if root == "absolute" else root
    recipe["data"] = options.to_dict(schema.Folder(root=place))
    (folder / "recipe.json").write_text(json.dumps(recipe))
    for number in range(8):
        path = tmp_path / "project" / "photos" / "bird" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (30, 20), number).save(path)
    (tmp_path / "project" / "photos" / "all.csv").touch()
    (tmp_path / "elsewhere").mkdir()
    for lines in ("bird/{}.png\n", "photos/bird/{}.png\n"):
        (folder / "test_paths.txt").write_text("".join(lines.format(number) for number in range(8)))
        for where in ("project", "elsewhere"):
            monkeypatch.chdir(tmp_path / where)
            page = write_page([folder], tmp_path / "page.html").read_text()
            assert "8 of 8 queries" in page and "cannot be read" not in page
    (tmp_path / "project" / "photos").rename(tmp_path / "gone")
    assert "seen from the recipe&#x27;s data.root" in write_page([folder], tmp_path / "page.html").read_text()


def test_a_page_of_large_noisy_images_stays_small(tmp_path):
    runs = [write_run(tmp_path / name, 0.5, seed, per_class=150, size=96) for seed, name in enumerate("abcd")]
    page = write_page(runs, tmp_path / "page.html")
    assert 1_000_000 < page.stat().st_size < 3_000_000
    shown = len(json.loads(re.search(r'id="galleries">(.*?)</script>', page.read_text())[1])[0]["queries"])
    assert f"{shown} of 1200 queries" in page.read_text() and 10 < shown < 200


# ---------------------------------------------------------------- in a browser

ROWS = "[...document.querySelector('{0} table').tBodies[0].rows].map((row) => row.cells[{1}].textContent)"
OVERFLOW = """[...document.querySelectorAll('body *')].filter((node) => !node.closest('.scroll, .skip, #tip') &&
    node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML.slice(0, 200))"""
CUT_OFF = """[...document.querySelectorAll('svg[viewBox] text')].filter((node) => {
    const [a, b] = [node.getBoundingClientRect(), node.ownerSVGElement.getBoundingClientRect()];
    return b.width && (a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1);
}).map((node) => node.textContent)"""
OVERLAPS = """[...document.querySelectorAll('svg[viewBox]')].flatMap((svg) => {
    const places = (kind) => [...svg.querySelectorAll(kind)].map((node) => [node.textContent || kind,
        node.getBoundingClientRect()]);
    const found = places('text'), marks = places('.mark');
    return found.flatMap(([name, a], i) => [...found.slice(i + 1), ...marks].filter(([, b]) => a.width &&
        a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
        .map(([other]) => [name, other]));
})"""
RESOURCES = "performance.getEntriesByType('resource').map((e) => e.name).filter((name) => !/^data:/.test(name))"
CONTRAST = """(() => {
    const parse = (color) => color.match(/[\\d.]+/g).map(Number);
    const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const ground = (node) => {
        for (; node; node = node.parentElement) {
            const color = parse(getComputedStyle(node).backgroundColor);
            if (color.length < 4 || color[3] > 0) return color;
        }
        return [255, 255, 255];
    };
    const poor = [];
    for (const node of document.querySelectorAll('body *')) {
        if (node.matches('script, noscript, :disabled, option') || !node.getClientRects().length) continue;
        if (![...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())) continue;
        const style = getComputedStyle(node);
        const ink = parse(node.ownerSVGElement ? style.fill : style.color);
        const [a, b] = [light(ink), light(ground(node))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) poor.push([node.outerHTML.slice(0, 120), (a + 0.05) / (b + 0.05)]);
    }
    return poor;
})()"""


@pytest.mark.parametrize("name", ["one", "four", "two", "table", "pair", "norms", "flat", "simclr", "faces", "trials"])
def test_a_page_opens_clean_at_both_widths_and_in_both_themes(browser, pages, name):
    grounds = []
    for width in (1400, 390):
        for scheme in ("light", "dark"):
            browser.open(pages[name], width, scheme)
            browser.run("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
            assert browser.run(OVERFLOW) == [] and browser.run("document.documentElement.scrollWidth") == width
            assert browser.run(CUT_OFF) == [] and browser.run(OVERLAPS) == []
            assert browser.run(CONTRAST) == []
            assert browser.run(RESOURCES) == []
            assert browser.complaints == []
            grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] == grounds[2] != grounds[1] == grounds[3]


def test_what_files_say_is_never_code(browser, pages):
    browser.open(pages["two"])
    assert browser.run("window.hacked") is None and browser.run("document.scripts.length") == 2
    assert browser.run("document.querySelectorAll('[onerror], img[src=x]').length") == 0
    assert browser.run("document.querySelector('.query h3').textContent").startswith(NASTY)
    assert browser.run(f"document.body.innerText.includes({json.dumps(NASTY)})")
    # The policy itself refuses whatever would slip through.
    browser.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hacked = 2'}))")
    assert browser.run("window.hacked") is None and "Content Security Policy" in " ".join(browser.complaints)


def test_the_theme_can_be_chosen(browser, pages):
    browser.open(pages["one"], scheme="light")
    colors = []
    for _ in range(3):
        browser.run("document.getElementById('theme').click()")
        words = browser.run("document.getElementById('theme').textContent")
        colors.append((words, browser.run("getComputedStyle(document.body).backgroundColor")))
    assert [words for words, _ in colors] == ["Theme: light", "Theme: dark", "Theme: system"]
    assert colors[0][1] == colors[2][1] != colors[1][1]


def test_tables_sort_by_click_and_by_keyboard(browser, pages):
    browser.open(pages["table"])
    cells, recalls = (ROWS.format("#table0", column) for column in (0, 3))
    assert browser.run(cells)[:2] == ["cub200-ms-lr1e-05"] * 2  # numbers in order, not their letters
    browser.run("document.querySelectorAll('#table0 thead button')[3].click()")
    assert browser.run(recalls)[0] == "63.5 ± 0.7" and browser.run(recalls)[-1] == "-"
    assert browser.run("document.querySelectorAll('#table0 thead th')[3].ariaSort") == "descending"
    browser.run("document.querySelectorAll('#table0 thead button')[3].focus()")
    browser.press("Enter", 13)
    assert browser.run(recalls)[0] == "60.5 ± 0.7" and browser.run(recalls)[-1] == "-"  # what is not there stays last
    assert browser.run("document.querySelectorAll('#table0 thead th')[3].ariaSort") == "ascending"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.run("document.querySelectorAll('#table0 thead button')[1].click()")
    assert browser.run(ROWS.format("#table0", 1))[:3] == ["l2reg", "none", "none"]
    assert browser.run("document.querySelectorAll('[aria-sort]').length") == 1


def test_a_table_of_runs_has_means_differences_trials_and_what_diverged(browser, pages):
    browser.open(pages["table"])
    words = browser.run("document.getElementById('table0').textContent")
    assert "0 (1 diverged)" in words and "3 tuning trials" in words and "curves of cub200-ms-lr0.0002" in words
    rows = "[...document.querySelectorAll('#table0 tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    rows = browser.run(rows)
    assert ["sec - none", "R@1", "+2.0", "+2.0", "+2.0", "2 of 2", "4"] in rows
    assert ["sec-relative - sec", "MAP@R", "+0.5", "+0.5", "+0.5", "2 of 2", "4"] in rows


def test_metrics_and_recipes_are_on_the_page(browser, pages):
    browser.open(pages["two"])
    assert browser.run(ROWS.format("#metrics", 0)) == ["plain", "sec"]
    assert browser.run(ROWS.format("#metrics", 2)) == ["50.0", "61.7"]
    assert browser.run(ROWS.format("#recipes", 0)) == ["constraint.eta"]
    sections = browser.run("[...document.querySelectorAll('nav a')].map((a) => document.querySelector(a.hash).id)")
    assert sections == ["alarms", "metrics", "curves", "norms", "directions", "gallery", "recipes"]
    words = browser.run("document.getElementById('alarms').innerText")
    assert f"plain, step 3: norms spread, {NASTY} (2 times, at last in step 17)" in words and "sec" not in words
    labels = browser.run("[...document.querySelectorAll('svg[role=img]')].map((svg) => svg.getAttribute('aria-label'))")
    assert "slope of log turn by log norm by step: plain ends at -1; sec ends at -1" in labels
    assert "radial share of the squared gradient, log axis by step: plain ends at 2e-14; sec ends at 2e-14" in labels
    assert all(labels) and len(labels) > 15
    band = "document.querySelectorAll('#norms figure')[0].querySelectorAll('.band').length"
    assert browser.run(band) == 2, "least to greatest norm"


def test_the_metrics_of_four_runs_are_seen_whole_with_lines_between_them(browser, pages, tmp_path):
    sizes = "(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.querySelector('#metrics .scroll'))"
    browser.open(pages["four"])
    whole, seen = browser.run(sizes)
    assert whole == seen, "on a screen nothing is cut off"
    browser.open(pages["four"], 390)
    whole, seen = browser.run(sizes)
    assert whole > 2 * seen, "on a phone it scrolls"
    cells = "[...document.querySelectorAll('#metrics tbody tr')].flatMap((row) => [...row.cells].slice(0, 2))"
    for shift in (0.25, 0.5, 0.75):  # where the pixels happen to lie must not matter
        browser.run(f"document.getElementById('metrics').style.paddingTop = '{shift}px'")
        places = browser.run(f"{cells}.map((cell) => cell.getBoundingClientRect()).map(({{x, y}}) => [x + 40, y])")
        browser.screenshot(tmp_path / "page.png")
        with Image.open(tmp_path / "page.png") as image:
            shown = image.convert("RGB")
        lines = [{shown.getpixel((int(x), int(y) + row)) for row in (-1, 0, 1)} for x, y in places]
        assert len(lines) == 8 and all(line == lines[1] and len(line) == 2 for line in lines)


def test_charts_tell_their_values_by_pointer_and_keyboard(browser, pages):
    browser.open(pages["two"])
    titles = "[...document.querySelectorAll('#curves .chart > figcaption')].map((node) => node.textContent)"
    loss = browser.run(titles).index("training loss")
    browser.hover("#curves svg[data-chart]", loss)
    tip = browser.run("document.getElementById('tip').innerText.split('\\n')")
    step = int(tip[0].removeprefix("step "))
    assert 8 <= step <= 13 and tip[1:] == [f"{name}: {float(f'{1 / step:.4g}'):g}" for name in ("plain", "sec")]
    browser.run(f"document.querySelectorAll('#curves svg[data-chart]')[{loss}].focus()")
    browser.press("ArrowRight", 39)
    after = browser.run("document.getElementById('tip').innerText.split('\\n')[0]")
    assert after == f"step {step + 1}"
    browser.press("Escape", 27)
    assert browser.run("document.getElementById('tip').hidden") and browser.complaints == []


def test_a_chart_by_learning_rate_tells_the_nearest_one_on_its_axis(browser, pages):
    browser.open(pages["table"])
    titles = "[...document.querySelectorAll('#table0 svg[data-chart]')].map((svg) => svg.getAttribute('aria-label'))"
    number = next(i for i, title in enumerate(browser.run(titles)) if "by learning rate" in title)
    browser.hover("#table0 svg[data-chart]", number)
    browser.run(f"document.querySelectorAll('#table0 svg[data-chart]')[{number}].focus()")
    seen = []
    for key, code in (("ArrowLeft", 37), ("ArrowRight", 39)):
        browser.press(key, code)
        place = "document.querySelector('#table0 svg .cursor[d]').getAttribute('d')"
        seen.append((browser.run("document.getElementById('tip').innerText.split('\\n')[0]"), browser.run(place)))
    assert [words for words, _ in seen] == [f"learning rate of the head {rate}" for rate in ("0.00001", "0.0002")]
    along = [float(re.match(r"M([\d.]+) ", path)[1]) for _, path in seen]
    share = math.log(1.2) / math.log(20 * 1.44)  # of the axis, on either side
    assert along == pytest.approx([50 + share * 332, 382 - share * 332], abs=0.1) and browser.complaints == []


def test_the_gallery_marks_nothing_without_labels(browser, pages):
    browser.open(pages["flat"])
    assert browser.run("document.querySelectorAll('.controls select').length") == 0, "there is nothing to choose by"
    hits = browser.run("[...document.querySelectorAll('.hit')].map((hit) => [hit.className, hit.textContent[0]])")
    assert len(hits) == 30 and all(hit == ["hit alone", "○"] for hit in hits) and browser.complaints == []
    assert browser.run("document.querySelector('.hit img').alt").startswith("no labels: photos")


def test_the_gallery_marks_no_error_where_a_class_has_one_image(browser, tmp_path):
    browser.open(write_page([write_run(tmp_path / "run", 0.5, 0, per_class=1)], tmp_path / "page.html"))
    hits = browser.run("[...document.querySelectorAll('.hit')].map((hit) => [hit.className, hit.textContent[0]])")
    assert len(hits) == 30 and all(hit == ["hit alone", "○"] for hit in hits)
    assert "no other image of its class" in browser.run("document.querySelector('.query h3').textContent")
    wrong = "[...document.querySelectorAll('.controls option')].find((one) => one.value.includes('wrong')).value"
    browser.run(f"document.querySelector('.controls select').value = {wrong}")
    browser.run("document.querySelector('.controls select').dispatchEvent(new Event('change'))")
    assert browser.run("document.querySelector('.gallery [role=status]').textContent") == "no such query"
    assert browser.run(CONTRAST) == [] and browser.complaints == []


def test_the_gallery_pages_decodes_marks_and_filters(browser, pages, sources):
    browser.open(pages["two"])
    status = "document.querySelector('.gallery [role=status]').textContent"
    titles = "[...document.querySelectorAll('.query h3')].map((node) => node.textContent)"
    assert browser.run(status) == "page 1 of 8, 48 queries"
    images = "[...document.querySelectorAll('.query img')]"
    decoded = f"Promise.all({images}.map((image) => image.decode().then(() => image.naturalWidth)))"
    seen = browser.run(titles)
    for _ in range(7):
        browser.run("document.querySelectorAll('.controls button')[1].click()")
        assert set(browser.run(decoded)) == {24}
        seen += browser.run(titles)
    assert len(seen) == len(set(seen)) == 48 and browser.run(status) == "page 8 of 8, 48 queries"
    assert browser.run("document.querySelectorAll('.controls button')[1].disabled")
    browser.run("document.querySelectorAll('.controls button')[0].click()")
    assert browser.run(status).startswith("page 7 of 8")

    pick = "(() => {{ const list = document.querySelectorAll('.controls select')[{0}]; list.value = {1};"
    pick += "list.dispatchEvent(new Event('change')); }})()"
    browser.run(pick.format(1, json.dumps("gull")))
    assert browser.run(status) == "page 1 of 1, 6 queries"
    assert all(title.startswith("gull (image ") for title in browser.run(titles))
    # Every neighbor of the first gull, run by run, against the embeddings themselves.
    hits = "[...document.querySelectorAll('.query')[0].querySelectorAll('.hit')].map((hit) => [hit.className, "
    hits += "hit.textContent, hit.querySelector('img').alt])"
    expected = []
    for folder in sources["two"]:
        embedded = read_run(folder, "").embedded
        unit = embedded.embeddings / np.linalg.norm(embedded.embeddings, axis=1, keepdims=True)
        for index in [i for i in np.argsort(-unit @ unit[12], kind="stable") if i != 12][:5]:
            cosine, right = float(unit[index] @ unit[12]), embedded.labels[index] == 2
            alt = f"{'right' if right else 'wrong'}: {CLASSES[embedded.labels[index]]}, cosine {round(cosine, 4):.3f}"
            expected.append(["hit right" if right else "hit wrong", "✓" if right else "✗", alt])
    found = browser.run(hits)
    assert [[kind, mark[0], alt] for kind, mark, alt in found] == expected
    assert {kind for kind, _, _ in found} == {"hit wrong", "hit right"}
    borders = "new Set([...document.querySelectorAll('.hit')].map((hit) => getComputedStyle(hit).borderTopStyle)).size"
    assert browser.run(borders) == 2  # not by color alone
    browser.hover(".hit")
    tip = browser.run("document.getElementById('tip').innerText")
    assert "label " in tip and "cosine 0." in tip and expected[0][2].split(": ")[1].split(",")[0] in tip
    browser.run(pick.format(1, json.dumps("all classes")) + ";" + pick.format(0, json.dumps("worst errors")))
    assert "worst error no. 1)" in browser.run(titles)[0] and browser.complaints == []


def test_everything_but_the_gallery_is_there_without_scripts(browser, pages):
    browser.open(pages["two"], scripts=False)
    # Scripts of the page are off; those of the debugger run.
    assert browser.run("document.querySelectorAll('table').length") > 10
    assert browser.run("document.querySelectorAll('svg path').length") > 100
    assert browser.run("document.querySelectorAll('thead button').length") == 0
    assert browser.run("document.getElementById('theme').offsetParent") is None
    assert browser.run("document.querySelectorAll('noscript tbody tr').length") == 48
    browser.ask("Emulation.setScriptExecutionDisabled", value=False)

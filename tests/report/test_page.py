"""The report page: its numbers against plain loops, whatever is missing, and files that stay whole."""

import html
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import isosphere.report.page as page_module
from isosphere import runs
from isosphere.errors import BadArgument, NoFolder, NotAPlainFile, NotARun, NotResults
from isosphere.metrics import registry
from isosphere.paper import find
from isosphere.recipes import constraints, options, schema
from isosphere.report import write_page
from isosphere.report.page import shell
from isosphere.report.page.measured import LAST_BATCH
from isosphere.report.page.panels import density_chart, line_chart
from isosphere.report.page.sources import read_sources
from isosphere.report.svg import POINTS, ink, panel_svg
from isosphere.report.turns import turn_slopes
from numbers_in import numbers
from written import CLASSES, faces_file, norms_file, pair_file, results_file, simclr_file, unlabeled, write_run


def page_of(tmp_path: Path, *sources: Path) -> str:
    return write_page(sources, tmp_path / "page.html").read_text(encoding="utf-8")


def plain(markup: str) -> str:
    """Markup as the words that are seen."""
    return html.unescape(re.sub(r"<[^>]*>", "", markup)).replace("\u00a0", " ")


def tables(page: str) -> dict[str, list[dict[str, str]]]:
    """The rows of every table by its caption, each by its headings; equal captions are joined."""
    found: dict[str, list[dict[str, str]]] = {}
    pattern = r'<figure class="tabled"><figcaption>(.*?)</figcaption>.*?<thead>(.*?)</thead><tbody>(.*?)</tbody>'
    for caption, head, body in re.findall(pattern, page, re.DOTALL):
        names = [plain(cell) for cell in re.findall(r"<th[^>]*>(.*?)</th>", head)]
        for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL):
            values = [plain(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            found.setdefault(plain(caption), []).append(dict(zip(names, values, strict=True)))
    return found


def table(page: str, beginning: str) -> list[dict[str, str]]:
    """The table whose caption begins so."""
    return next(rows for caption, rows in tables(page).items() if caption.startswith(beginning))


def charts(page: str) -> dict[str, str]:
    """What every chart says to those who cannot see it, by its title."""
    found = re.findall(r'<figure class="chart"><figcaption>(.*?)</figcaption><svg[^>]*aria-label="(.*?)"', page)
    return {html.unescape(title): html.unescape(label) for title, label in found}


def section(page: str, name: str) -> str:
    """The markup of a section; nothing where there is none."""
    found = re.search(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
    return found[1] if found else ""


def sentences(markup: str) -> list[str]:
    """The items of lists that are no legend."""
    return [plain(item) for item in re.findall(r"<li>(?!<svg)(.*?)</li>", markup, re.DOTALL)]


def missing(page: str) -> list[str]:
    box = re.search(r'<div class="missing"[^>]*>(.*?)</div>', page, re.DOTALL)
    return sentences(box[1]) if box else []


def legends(page: str) -> list[dict[str, str]]:
    """What each legend says: the color of each name."""
    found = re.findall(r'<ul class="legend">(.*?)</ul>', page)
    return [dict((plain(n), c) for c, n in re.findall(r"stroke: (.*?);.*?</svg>(.*?)</li>", one)) for one in found]


def galleries(page: str) -> list[dict]:
    return json.loads(re.search(r'id="galleries">(.*?)</script>', page)[1])


def section_tables(page: str, name: str) -> list[dict[str, str]]:
    """The rows of a section's first table."""
    return next(iter(tables(section(page, name)).values()))


def heading(key: str) -> str:
    return registry.metric(key).heading


def edit_json(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# ---------------------------------------------------------------- charts


def test_a_chart_needs_two_points_and_lives_with_strange_ones():
    styles = {"run": ("#0072B2", "-")}
    assert line_chart("a", {}, styles) == "" == line_chart("a", {"run": [(1, 1.0)]}, styles)
    assert line_chart("a", {"run": [(1, 0.0), (2, -1.0), (3, 5.0)]}, styles, log=True) == "", "one has a logarithm"
    drawn = line_chart("a", {"run": [(1, 0.0), (3, 5.0), (4, 5.0)]}, styles, log=True, bands={"run": [(1, 1.0, 2.0)]})
    assert "nan" not in drawn and charts(drawn) == {"a, log axis": "a by step: run ends at 5"}
    tiny = line_chart("a", {"run": [(step, 1e-15 * step) for step in (2, 3, 4)]}, styles, log=True)
    assert numbers(*charts(tiny).values()) == ["4e-15"]  # as the radial share of an angular loss
    long = line_chart("a", {"run": [(step, float(step % 7)) for step in range(100_000)]}, styles)
    assert max(path.count("L ") for path in re.findall(r' d="(.*?)"', long, re.DOTALL)) <= POINTS
    assert density_chart("a", "norm", {}, styles) == ""


WORDS = 'quotes & "so"'


def test_a_panel_is_svg_that_a_page_can_hold():
    def draw(panel):
        panel.plot([0, 1], [0, 1], color="#0072B2", marker="o")

    svg = panel_svg(draw, WORDS)
    assert svg == panel_svg(draw, WORDS), "the same every time"
    assert svg.startswith("<svg viewBox=") and "<style" not in svg and "<metadata" not in svg
    assert f'="{html.escape(WORDS)}"' in svg and ink("#0072B2") in svg and "var(--line)" in svg
    ids, uses = set(re.findall(r'id="(\w+)"', svg)), set(re.findall(r'(?:href="|url\()#(\w+)', svg))
    assert uses and uses == ids & uses, "all that is used is there"
    other = panel_svg(lambda panel: panel.plot([0, 1], [1, 0], color="#0072B2", marker="o"), "")
    assert not ids & set(re.findall(r'id="(\w+)"', other)), "names are of the whole page"
    assert panel_svg(lambda panel: None, "") == ""


@pytest.mark.parametrize("method", ["none", "sec", "sec-relative", "l2reg"])
def test_a_method_has_the_color_that_it_has_in_figures(method):
    color = constraints.METHODS[method].color.lower()
    dark = re.fullmatch(rf"light-dark\({color}, (#\w+)\)", ink(color))[1]
    parts = [[int(one[place : place + 2], 16) for place in (1, 3, 5)] for one in (color, dark)]
    assert all(light > own or own == 255 for own, light in zip(*parts, strict=True)), "lighter on dark ground"


# ---------------------------------------------------------------- the file


@pytest.fixture
def run(tmp_path) -> Path:
    return write_run(tmp_path / "run", 0.5, 0)


def test_the_old_page_stays_when_the_new_one_fails(run, tmp_path, monkeypatch):
    out = tmp_path / "page.html"
    out.write_text("old")

    def fails(*_):
        raise RuntimeError("no room on the disk")

    for module, name in ((page_module, "recipes_section"), (shell, "embedded")):
        with monkeypatch.context() as patch, pytest.raises(RuntimeError):
            patch.setattr(module, name, fails)
            write_page([run], out)
        assert out.read_text() == "old"
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(os, "replace", fails)
        write_page([run], out)
    assert out.read_text() == "old" and sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "run"]


def test_a_link_is_followed_and_stays_one(run, tmp_path):
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to("real.html")
    write_page([run], tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink() and (tmp_path / "real.html").read_text().startswith("<!DOCTYPE")


def test_what_is_not_a_plain_file_is_refused(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for out in (tmp_path, tmp_path / "pipe", tmp_path / "null", Path("/dev/null")):
        with pytest.raises(NotAPlainFile):
            write_page([run], out)
    with pytest.raises(NoFolder):
        write_page([run], tmp_path / "absent" / "page.html")
    assert not Path("/dev/null").is_file() and (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("empty", None, NotARun), ("list.json", b"[1]", NotResults), ("absent", b"", NotResults),
        ("none.json", b'{"runs": [], "trials": []}', NotResults),
        ("e.npy", b"\x93NUMPY" + bytes(100_000), NotResults),
    ],
)  # fmt: skip
def test_what_is_no_source_is_refused(tmp_path, name, content, error):
    path = tmp_path / name
    if content is None:
        path.mkdir()
    elif content:
        path.write_bytes(content)
    with pytest.raises(error) as refused:
        write_page([path], tmp_path / "page.html")
    assert len(str(refused.value)) < 400, "without what the file holds"
    with pytest.raises(BadArgument):
        write_page([], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


# ---------------------------------------------------------------- runs


def test_a_half_written_run_is_shown_as_far_as_it_goes(run, tmp_path):
    for name in (runs.RESULT, runs.THUMBNAILS):
        (run / name).unlink()
    lines = (run / runs.METRICS).read_text().splitlines(keepends=True)
    (run / runs.METRICS).write_text("".join(lines[:9]) + lines[9][:20])
    (run / runs.EMBEDDINGS).write_bytes(b"PK\x03\x04 cut short")
    (run / runs.SNAPSHOTS / "step-0000020.npz").write_bytes(b"")
    page = page_of(tmp_path, run)
    for name in (runs.RESULT, runs.METRICS, runs.EMBEDDINGS, "step-0000020.npz"):
        assert any(name in problem for problem in missing(page)), name
    (row,) = table(page, "test classes")
    assert row["R@1"] == "10.0" and numbers(row["state"]) == ["8", "20"]  # of the first evaluation
    assert "training loss" in charts(page) and section(page, "directions")


def test_a_run_without_snapshots_embeddings_or_lines(run, tmp_path):
    for path in [run / runs.METRICS, run / runs.EMBEDDINGS, *(run / runs.SNAPSHOTS).iterdir()]:
        path.unlink()
    page = page_of(tmp_path, run)
    assert len(missing(page)) == 3 and not section(page, "curves") and not section(page, "directions")
    assert table(page, "test classes")[0]["R@1"] == "50.0"


def test_a_whole_run_lacks_nothing(run, tmp_path):
    assert missing(page_of(tmp_path, run)) == []


ABSENT = ("norm_min", "norm_max", "lr_proxy_mean", "lr_proxy_cv", "radial_share")


@pytest.mark.parametrize(
    ("edit", "problems"),
    [
        (lambda lines: [{k: v for k, v in line.items() if k not in ABSENT} for line in lines], [ABSENT]),
        (lambda lines: lines[1:2] + lines[-1:], [("training lines",), ("evaluations",)]),
        (lambda lines: [], [("empty",)]),
        (lambda lines: [line | {"loss": "x"} if line["step"] == 3 else line for line in lines], [("loss", "step 3")]),
    ],
    ids=("older", "few", "none", "odd"),
)
def test_what_lines_lack_is_said(run, tmp_path, edit, problems):
    lines = [json.loads(line) for line in (run / runs.METRICS).read_text().splitlines()]
    (run / runs.METRICS).write_text("".join(json.dumps(line) + "\n" for line in edit(lines)))
    page = page_of(tmp_path, run)
    found = missing(page)
    assert len(found) == len(problems)
    for problem, words in zip(found, problems, strict=True):
        assert all(word in problem for word in words)
    assert table(page, "test classes")[0]["R@1"] == "50.0"


def test_unfinished_runs_are_compared_at_their_own_steps(tmp_path):
    plain_run, sec = write_run(tmp_path / "plain", 0.5, 0, eta="0.0"), write_run(tmp_path / "sec", 0.6, 1)
    (sec / runs.RESULT).unlink()
    lines = (sec / runs.METRICS).read_text().splitlines(keepends=True)
    (sec / runs.METRICS).write_text("".join(lines[:11]))
    page = page_of(tmp_path, plain_run, sec)
    assert numbers(sentences(section(page, "metrics"))[0].partition(": ")[2])[:4] == ["0", "20", "10.0", "50.0"]
    recipe = json.loads((sec / runs.RECIPE).read_text())
    edit_json(sec / runs.RECIPE, loop=recipe["loop"] | {"unit": "epochs", "steps": 3})
    assert table(page_of(tmp_path, sec), "test classes")[0]["state"].split()[1:] == ["10", "steps", "of", "3", "epochs"]


def test_an_unfinished_run_is_as_far_as_its_lines_or_its_checkpoint(run, tmp_path):
    (run / runs.RESULT).unlink()
    lines = (run / runs.METRICS).read_text().splitlines(keepends=True)
    for kept, saved, done in ((1, 10, 10), (1, None, 0), (13, 10, 12)):  # it was stopped before its first line
        (run / runs.METRICS).write_text("".join(lines[:kept]))
        (run / runs.CHECKPOINT).unlink(missing_ok=True)
        if saved:
            torch.save({"step": saved, "model": {"weight": torch.zeros(3)}}, run / runs.CHECKPOINT)
        assert table(page_of(tmp_path, run), "test classes")[0]["state"] == f"unfinished, {done} of 20"
    (run / runs.CHECKPOINT).write_bytes(b"cut short")
    assert any(runs.CHECKPOINT in problem for problem in missing(page_of(tmp_path, run)))


def test_runs_seen_at_other_steps_have_them_in_the_title(tmp_path):
    both = [write_run(tmp_path / "plain", 0.5, 0, eta="0.0"), write_run(tmp_path / "sec", 0.6, 1)]
    assert any("(step 20)" in title for title in charts(page_of(tmp_path, *both)))
    for step in (15, 20):
        (both[1] / runs.SNAPSHOTS / f"step-{step:07d}.npz").unlink()
    titles = [title for title in charts(page_of(tmp_path, *both)) if "plain:" in title and "sec:" in title]
    found = {tuple(numbers(title)) for title in titles}
    assert found == {("20", "10"), ("15", "20", "5", "10")}


@pytest.mark.parametrize("old", [False, True])
def test_a_damaged_snapshot_takes_the_slope_after_it_along(run, old):
    for path in sorted((run / runs.SNAPSHOTS).iterdir()) if old else ():
        arrays = dict(np.load(path))
        arrays.pop("since", None)  # as files of older versions
        np.savez(path, **arrays)
    recipe = json.loads((run / runs.RECIPE).read_text())
    edit_json(run / runs.RECIPE, loop=recipe["loop"] | {"snapshot_every": 5})
    assert [step for step, _ in turn_slopes(runs.read(run))] == [5, 10, 15, 20]
    (run / runs.SNAPSHOTS / "step-0000010.npz").write_bytes(b"PK")
    assert [step for step, _ in turn_slopes(runs.read(run))] == [5, 20]


def test_a_recipe_of_another_version_is_shown_as_it_stands(run, tmp_path):
    recipe = json.loads((run / runs.RECIPE).read_text())
    edit_json(run / runs.RECIPE, loop=recipe["loop"] | {"wobble": 7})
    other = write_run(tmp_path / "new", 0.5, 1)
    page = page_of(tmp_path, run, other)
    assert {"field": "loop.wobble", "run": "7", "new": "-"} in section_tables(page, "recipes")
    assert any(runs.RECIPE in problem for problem in missing(page))
    edit_json(run / runs.RECIPE, data=None, loop=5)
    assert {"field": "data", "value": "none"} in tables(page_of(tmp_path, run))["recipe of run"]


def test_what_was_tested_is_what_the_run_says(run, tmp_path):
    tested = "test images; 3 of 5 classes were trained on"
    edit_json(run / runs.RESULT, tested=tested)
    assert table(page_of(tmp_path, run), tested)
    recipe = options.to_dict(find("cub200-ms", {"validation.only": "true"}))  # a trial
    edit_json(run / runs.RECIPE, **recipe)
    edit_json(run / runs.RESULT, recipe=recipe, tested="test classes, never seen in training")
    page = page_of(tmp_path, run)
    assert table(page, HELD_OUT)
    assert any("held-out" in title for title in charts(page)) and not any("test images" in t for t in charts(page))


def test_a_run_without_the_probe_is_compared_by_what_both_have(tmp_path):
    both = [write_run(tmp_path / "plain", 0.5, 0, eta="0.0"), write_run(tmp_path / "sec", 0.6, 1)]
    for folder, last in zip(both, ({"knn": 0.5}, {"knn": 0.6, "probe_top1": 0.7}), strict=True):
        edit_json(folder / runs.RESULT, last=last, oracle=last)
    (said, *_) = sentences(section(page_of(tmp_path, *both), "metrics"))
    assert numbers(said.partition(registry.metric("knn").heading)[2])[:3] == ["60.0", "50.0", "+10.0"]


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("lfw_auc", "lfw", "accuracy", "rank1@1000", "rank1@10000", "rank1@a"), ["accuracy", "rank1@10000"]),
        (("knn", "probe_top1@1", "probe_top1", "probe_top5", "probe_best_top1"), ["probe_top1", "knn"]),
        (("f1", "nmi", "recall@2", "map@r", "recall@1"), ["recall@1", "map@r", "nmi", "f1"]),
        (("lfw", "lfw_auc"), ["lfw"]),
    ],
)
def test_sentences_have_the_main_metrics_of_every_task(names, keys):
    assert [one.key for one in registry.main(names)] == keys


def test_runs_of_one_name_keep_apart_and_one_given_twice_counts_once(tmp_path):
    twins = [write_run(tmp_path / name / "run", 0.5, seed) for seed, name in enumerate("ab")]
    found, _ = read_sources([*twins, twins[0], twins[1] / ".." / "run"])
    assert [one.name for one in found] == ["a/run", "b/run"]


def test_names_beyond_four_are_folded(tmp_path):
    folders = [write_run(tmp_path / f"{'long-' * 12}{seed}", 0.5, seed) for seed in range(6)]
    page = page_of(tmp_path, *folders)
    names = [folder.name for folder in folders]
    first, others = re.search(r'<div class="names"><p>(.*?)</p><details>.*?<p>(.*?)</p></details>', page).groups()
    assert (first, others) == (", ".join(names[:4]), ", ".join(names[4:]))


def test_runs_that_differ_in_the_constraint_alone_are_compared(tmp_path):
    both = [write_run(tmp_path / "plain", 0.5, 0, eta="0.0"), write_run(tmp_path / "sec", 0.618, 1)]
    last = both[1] / runs.SNAPSHOTS / "step-0000020.npz"
    held = np.load(last)
    np.savez(last, **{**held, "angles": 2 * held["norms"]})
    shots = [np.load(folder / runs.SNAPSHOTS / last.name)["angles"].astype(float) for folder in both]

    def compared() -> list[str]:
        return [s for s in sentences(section(page_of(tmp_path, *both), "metrics")) if s.startswith("sec against plain")]

    (words,) = compared()
    for part in (
        "(SEC (η 0.1), not baseline)", "R@1 61.8 %, not 50.0 (+11.8 points)", "MAP@R 30.9, not 25.0 (+5.9)",
        "NMI 50.0, not 50.0 (+0.0)", "0.1, not 0.125", f"{shots[1].var():.3g} degrees², not {shots[0].var():.3g}",
        "slope of log turn by log norm 1, not -1",
    ):  # fmt: skip
        assert part in words
    recipe = json.loads((both[1] / runs.RECIPE).read_text())
    edit_json(both[1] / runs.RECIPE, loop=recipe["loop"] | {"log_every": 3}, claim="another")
    assert compared() == [words], "how often is written changes nothing"
    edit_json(both[1] / runs.RECIPE, seed=9)
    assert compared() == []


def test_pairs_of_several_seeds_have_a_mean(tmp_path):
    folders = []
    for seed, recalls in ((3, (0.5, 0.6)), (4, (0.4, 0.44))):
        for eta, recall in zip(("0.0", "0.1"), recalls, strict=True):
            folders.append(write_run(tmp_path / f"{eta}-{seed}", recall, 0, eta=eta))
            edit_json(folders[-1] / runs.RECIPE, seed=seed)
    found = sentences(section(page_of(tmp_path, *folders), "metrics"))
    assert sum(" against " in one for one in found) == 2
    (mean,) = (one for one in found if one.startswith("Mean of "))
    assert numbers(mean)[0] == "2" and numbers(mean.partition("R@1")[2])[:3] == ["52.0", "45.0", "+7.0"]


def test_what_is_odd_is_said_once_of_all_runs_it_is_true_of(tmp_path):
    folders = [write_run(tmp_path / name, 0.5 if name != "c" else 0.05, seed) for seed, name in enumerate("abc")]
    for folder, lacks in zip(folders, ("15 images", "15 images", ""), strict=True):
        last = json.loads((folder / runs.RESULT).read_text())["last"]
        edit_json(folder / runs.RESULT, deviation=lacks, last=last | {"singletons": 2})  # as older versions wrote it
    found = sentences(section(page_of(tmp_path, *folders), "metrics"))
    assert sum("15 images" in one for one in found) == 1 and any(one.startswith("a, b: ") for one in found)
    assert sum("2 queries" in one for one in found) == 1 and any(one.startswith("all runs: 2 ") for one in found)
    (worse,) = (one for one in found if "untrained" in one)
    assert worse.startswith("c: R@1") and not any("different" in one for one in found)
    edit_json(folders[1] / runs.RECIPE, data={"kind": "Folder", "root": "a/cups"})
    assert any("different" in one for one in sentences(section(page_of(tmp_path, *folders), "metrics")))


def test_a_run_on_faces_has_a_second_table(run, tmp_path):
    last = json.loads(faces_file(tmp_path / "faces.json").read_text())["runs"][0]["last"]
    edit_json(run / runs.RESULT, last=last, oracle=last)
    (first,), (second,) = list(tables(page_of(tmp_path, run)).values())[:2]
    assert list(first)[2:5] == ["accuracy", "CFP-FP", "CFP-FF"] and list(second)[:2] == ["run", "CFP-FP AUC"]
    assert second["CFP-FP AUC"] == "71.0"


def test_a_monitors_file_is_a_source_of_its_own(run, tmp_path):
    path = norms_file(tmp_path / "norms.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    page = page_of(tmp_path, path)
    warning = next(record for record in records if record["kind"] == "warning")
    assert any(one.startswith("norms.jsonl, run 1") and warning["text"] in one
               for one in sentences(section(page, "warnings")))  # fmt: skip
    first, second = tables(page)[LAST_BATCH]
    assert first["state"] == second["state"] and numbers(first["state"]) == ["12"]
    trained = [record for record in records if record["kind"] == "train"]
    assert second[registry.metric("norm_cv").column] == f"{trained[-1]['norm_cv']:.3g}"
    probes = [record for record in records if record["kind"] == "probe"]
    found, _ = read_sources([path])
    assert sum(map(turn_slopes, found), []) == [(record["step"], record["turn_slope"]) for record in probes]
    assert re.findall(r'section id="(\w+)"', page) == ["warnings", "metrics", "norms", "directions"]
    assert len(tables(page_of(tmp_path, run, path))) > 2 and section(page_of(tmp_path, run, path), "recipes")


# ---------------------------------------------------------------- retrievals


def test_images_come_from_paths_too_and_galleries_of_other_test_sets_stand_apart(tmp_path):
    first, second = write_run(tmp_path / "first", 0.5, 0), write_run(tmp_path / "second", 0.5, 1, per_class=4)
    for folder in (first, second):
        (folder / runs.THUMBNAILS).unlink()
    arrays = dict(np.load(first / runs.EMBEDDINGS))
    del arrays["classes"]
    np.savez(first / runs.EMBEDDINGS, **arrays)
    paths = []
    for number, label in enumerate(arrays["labels"]):
        path = tmp_path / "photos" / f"bird{label}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (300, 200), number).save(path)
        paths.append(str(path))
    (first / runs.PATHS).write_text("\n".join(paths) + "\n")
    (second / runs.PATHS).write_text("one line\n")
    page = page_of(tmp_path, first, second)
    (group,) = galleries(page)
    assert set(group["names"].values()) == {f"bird{label}" for label in range(len(CLASSES))}
    assert any("1 lines for 32" in one for one in sentences(section(page, "gallery")))
    os.remove(paths[0])
    (group,) = galleries(page_of(tmp_path, first))
    assert "0" not in group["images"] and 0 < len(group["queries"]) < 48


def test_an_image_alone_in_its_class_is_neither_right_nor_wrong(tmp_path):
    page = page_of(tmp_path, write_run(tmp_path / "run", 0.5, 0, per_class=1))
    (group,) = galleries(page)
    assert all(query["alone"] and query["worst"] == -1 for query in group["queries"])
    rows = tables(page)["the nearest image of every query"]
    assert len(rows) == 8 and not any("(wrong)" in row["nearest in run"] for row in rows)


def test_images_without_labels_are_neither_right_nor_wrong_nor_test_images(tmp_path):
    page = page_of(tmp_path, unlabeled(tmp_path / "run"))
    assert not galleries(page)[0]["labeled"]
    rows = tables(page)["the nearest image of every query"]
    assert not any("(wrong)" in row["nearest in run"] or "(right)" in row["nearest in run"] for row in rows)
    words = plain(re.sub("<noscript>.*?</noscript>", "", re.search("<main.*?</main>", page, re.DOTALL)[0]))
    assert "trained on" in words and not re.search(r"\btest", words.split("Recipes")[0]), "nothing was tested"


def test_names_of_files_that_are_not_utf8_are_shown(run, tmp_path):
    (run / runs.THUMBNAILS).unlink()
    arrays = dict(np.load(run / runs.EMBEDDINGS))
    arrays["classes"] = np.array(["caf\udce9", *CLASSES[1:]])
    np.savez(run / runs.EMBEDDINGS, **arrays)
    file = tmp_path / b"caf\xe9.png".decode(errors="surrogateescape")
    Image.new("L", (30, 20), 9).save(file, "PNG")
    (run / runs.PATHS).write_bytes(b"\n".join([bytes(file)] * len(arrays["labels"])))
    assert section_tables(page_of(tmp_path, run), "gallery")[0]["class"] == "caf?"


@pytest.mark.parametrize("root", ["photos", "photos/all.csv", "absolute"])
def test_images_are_found_from_any_directory(root, tmp_path, monkeypatch):
    """Below data.root, here or where the run folder is; older files have paths as they were given to training."""
    folder = write_run(tmp_path / "project" / "runs" / "run", 0.5, 0, per_class=1)
    (folder / runs.THUMBNAILS).unlink()
    place = str(tmp_path / "project" / "photos") if root == "absolute" else root
    edit_json(folder / runs.RECIPE, data=options.to_dict(schema.Folder(root=place)))
    for number in range(8):
        path = tmp_path / "project" / "photos" / "bird" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (30, 20), number).save(path)
    (tmp_path / "project" / "photos" / "all.csv").touch()
    (tmp_path / "elsewhere").mkdir()
    for lines in ("bird/{}.png\n", "photos/bird/{}.png\n"):
        (folder / runs.PATHS).write_text("".join(lines.format(number) for number in range(8)))
        for where in ("project", "elsewhere"):
            monkeypatch.chdir(tmp_path / where)
            assert len(galleries(page_of(tmp_path, folder))[0]["images"]) == 8
    (tmp_path / "project" / "photos").rename(tmp_path / "gone")
    assert galleries(page_of(tmp_path, folder)) == []


def test_a_page_of_large_noisy_images_stays_small(tmp_path):
    folders = [write_run(tmp_path / name, 0.5, seed, per_class=150, size=96) for seed, name in enumerate("abcd")]
    page = page_of(tmp_path, *folders)
    assert 1_000_000 < len(page) < 3_500_000 and 10 < len(galleries(page)[0]["queries"]) < 200


# ---------------------------------------------------------------- tables of runs

HELD_OUT, TRIALS = "held-out training classes", "tuning trials"
SEEDS = "test classes, never seen in training; metrics in %, mean ± standard deviation over seeds"
DIFFERENCES = "paired differences"


def test_a_table_has_means_differences_and_what_diverged(tmp_path):
    path = results_file(tmp_path / "rates_cub200.json")
    page = page_of(tmp_path, path)
    rows = {(row["cell"], row["method"]): row for row in tables(page)[SEEDS]}
    assert list(rows)[0] == ("cub200-ms-lr1e-05", "none"), "numbers in order, and no constraint first"
    assert rows["cub200-ms-lr0.0002", "sec-relative"]["R@1"] == "63.5 ± 0.7"
    assert rows["cub200-ms-lr1e-05", "l2reg"]["seeds"] == "0 (1 diverged)"
    found = {(row["difference"], row["metric"]): row for row in table(page, DIFFERENCES)}
    assert list(found["sec - none", "R@1"].values())[2:] == ["+2.0", "+2.0", "+2.0", "2 of 2", "4"]
    assert list(found[" - ".join(constraints.RIVALS), "MAP@R"].values())[2:] == ["+0.5", "+0.5", "+0.5", "2 of 2", "4"]
    assert len(table(page, "tuning trials")) == 3
    held = json.loads(path.read_text())
    held["runs"][0]["last"] = {}
    path.write_text(json.dumps(held))
    seeds = [row["seeds"] for row in tables(page_of(tmp_path, path))[SEEDS]]
    assert any("without" in one and numbers(one) == ["1", "1"] for one in seeds), "nobody said that it diverged"


BY_RATE = "by learning rate"


def test_a_table_of_learning_rates_has_a_chart_of_them_and_words(tmp_path):
    path = results_file(tmp_path / "rates.json")
    page = page_of(tmp_path, path)
    (relative,) = (one for one in sentences(section(page, "table0")) if one.startswith("relative SEC against"))
    assert numbers(relative)[:7] == ["4", "63.5", "60.5", "+3.0", "31.8", "30.2", "+1.5"]
    assert any(BY_RATE in title for title in charts(page))
    held = json.loads(path.read_text())
    next(record for record in held["runs"] if record["method"] == "sec")["recipe"]["model"]["dim"] += 1
    path.write_text(json.dumps(held))
    assert any(numbers(one)[:2] == ["3", "4"] for one in sentences(section(page_of(tmp_path, path), "table0")))
    for number, record in enumerate(held["runs"]):
        record["recipe"]["model"]["dim"] += number
    path.write_text(json.dumps(held))
    page = page_of(tmp_path, path)
    assert not any(BY_RATE in title for title in charts(page))
    assert any("model.dim" in one for one in sentences(section(page, "table0"))), "the runs differ in more"


def test_a_method_has_one_color_in_all_tables(tmp_path):
    first, second = results_file(tmp_path / "first.json"), results_file(tmp_path / "second.json")
    held = json.loads(second.read_text())
    held["runs"] = [record for record in held["runs"][::-1] if record["method"] != "none"]
    second.write_text(json.dumps(held | {"trials": []}))
    one, *_, other = legends(page_of(tmp_path, first, second))
    assert one == {constraints.METHODS[name].label: ink(constraints.METHODS[name].color)
                   for name in ("none", "sec", "sec-relative", "l2reg")}  # fmt: skip
    assert other == {name: one[name] for name in other} and len(other) == 3
    both = [write_run(tmp_path / "plain", 0.5, 0, eta="0.0"), write_run(tmp_path / "sec", 0.6, 1)]
    assert legends(page_of(tmp_path, *both))[0] == {"plain": one["baseline"], "sec": one["SEC"]}


def test_metrics_of_other_tasks_are_shown_by_their_own_names(tmp_path):
    path = results_file(tmp_path / "ours.json")
    held = json.loads(path.read_text())
    for record in held["runs"]:
        record["last"] = {"odd": record["last"]["recall@1"], "norm_mean": 2.0} if record["last"] else {}
    path.write_text(json.dumps(held))
    page = page_of(tmp_path, path)
    assert "odd" in next(iter(tables(page).values()))[0]
    assert {row["metric"]: row["mean"] for row in table(page, DIFFERENCES) if row["difference"] == "sec - none"} == {
        "odd": "+2.0"
    }


def test_a_table_leads_with_what_it_is_judged_by_and_draws_what_was_watched(tmp_path):
    page = page_of(tmp_path, simclr_file(tmp_path / "table5_cifar10.json"))
    rows = {row["method"]: row for row in next(iter(tables(page).values()))}
    names = list(rows["sec"])
    assert rows["none"]["probe top-1"] == "71.0 ± 1.4" and rows["sec"]["probe top-1"] == "73.0 ± 1.4"
    assert names.index("probe top-1") < names.index("k-NN") and list(rows["sec"].values())[-3:] == ["3.5", "1", "0.2"]
    found = charts(page)
    assert numbers(next(label for title, label in found.items() if title.startswith("k-NN"))) == ["61", "63"]
    assert not any("probe" in title and "in test" in title for title in found)
    assert numbers(next(label for title, label in found.items() if title.startswith("mean norm")))[-1] == "3.5"


def test_a_table_shows_how_far_directions_turned_where_its_runs_have_it(tmp_path):
    path = results_file(tmp_path / "turns.json")
    held = json.loads(path.read_text())
    for record in held["runs"]:
        seed, more = record["recipe"]["seed"], 5 * (record["method"] == "none")
        turns = [(10, 0, 40.0 + 2 * seed + more, 9.0), (20, 10, 20.0 + 2 * seed, 4.0)]
        keys = ("step", "since", "turn_mean", "turn_variance")
        record["turns"] = [dict(zip(keys, turn, strict=True)) | {"turn_slope": -0.5} for turn in turns]
    held["runs"][0]["turns"] = []  # as of a seed that took no snapshots
    assert not any("turn" in title for title in charts(page_of(tmp_path, path)))
    path.write_text(json.dumps(held))
    page = page_of(tmp_path, path)
    first = charts(page[: page.rindex("directions of cub200-ms-lr")])
    (turned,) = (label for title, label in first.items() if title.startswith("mean turn"))
    ends = {one.split(": ")[-1].split(" ends")[0]: numbers(one)[-1] for one in turned.split("; ")}
    assert (ends["baseline"], ends["SEC"]) == ("21", "22")


def test_a_table_of_faces_has_every_set_and_rank(tmp_path):
    page = page_of(tmp_path, faces_file(tmp_path / "table4_lfw.json"))
    first, second = list(tables(page).values())[:2]
    ranks = ["rank 1 of 1,000", "rank 1 of 10,000", "rank 1 among singles"]
    assert list(first[0])[2:9] == ["seeds", "accuracy", "CFP-FP", "CFP-FF", *ranks]
    details = [f"{name} {kind}" for kind in ("AUC", "TAR at FAR 1 %", "norm AUROC") for name in ("CFP-FP", "CFP-FF")]
    assert list(second[0]) == ["cell", "method", *details, heading("rank1_norm_auroc")]
    values = ("72.0", "82.0", "23.7", "23.7", "70.0", "60.0", "29.0")
    assert [value.split()[0] for value in list(second[0].values())[2:]] == list(values)
    found = {row["metric"]: row["mean"] for row in table(page, DIFFERENCES) if row["difference"] == "sec - none"}
    changes = dict.fromkeys(("accuracy", "cfp_fp", "cfp_ff", "cfp_fp_norm_auroc", "cfp_ff_norm_auroc"), "+2.0")
    changes |= {"rank1@10000": "+1.0", "rank1_norm_auroc": "-2.0"}
    assert found == {heading(key): change for key, change in changes.items()}


def test_trials_say_what_was_held_out_whatever_they_took_it_for(tmp_path):
    path = simclr_file(tmp_path / "table5.json", finals=False)
    rows = table(page_of(tmp_path, path), "tuning trials, judged on held-out training images")
    assert {row["probe top-1"] for row in rows if row["method"] == "sec"} == {"72.0", "74.0"}
    held = json.loads(path.read_text())
    for record in held["trials"]:
        record["recipe"] = options.to_dict(find("cub200-ms", {"validation.only": "true"}))
    path.write_text(json.dumps(held))
    assert table(page_of(tmp_path, path), f"{TRIALS}, judged on {HELD_OUT}")
    assert table(page_of(tmp_path, results_file(tmp_path / "other.json")), f"{TRIALS}; "), "nobody knows"


def test_trials_are_charted_by_learning_rate(tmp_path):
    path = simclr_file(tmp_path / "trials.json", finals=False)
    trials = []
    for method, eta, decay in (("none", 0.0, 0.1), ("none", 0.0, 0.2), ("sec", 0.25, 0.1), ("sec", 1.0, 0.1)):
        for record in json.loads(path.read_text())["trials"]:
            for rate in (0.5, 2.0) if record["method"] == method else ():
                one = json.loads(json.dumps(record))
                one["recipe"]["optimizer"] |= {"lr": rate, "weight_decay": decay}
                one["recipe"]["constraint"] |= {"eta": eta} if method == "sec" else {}
                one["last"]["probe_top1"] += rate / 100 + eta / 10
                trials.append(one)
    path.write_text(json.dumps({"trials": trials, "runs": []}))
    page = page_of(tmp_path, path)
    (label,) = charts(page).values()
    decays = [f"baseline, weight decay {decay}" for decay in (0.1, 0.2)]
    strengths = [f"SEC (η {eta}), weight decay 0.1" for eta in (0.25, 1)]
    (legend,) = legends(page)
    assert list(legend) == [*decays, *strengths] and len(set(legend.values())) == 2, "a method's lines have its color"
    most = {name: numbers(label.partition(name)[2])[0] for name in (strengths[1], decays[1])}
    assert list(most.values()) == ["86.0", "74.0"]


def test_one_pair_of_runs_has_no_interval(tmp_path):
    page = page_of(tmp_path, pair_file(tmp_path / "pair.json"))
    row = next(row for row in table(page, DIFFERENCES) if row["difference"] == "sec - none")
    assert (row["metric"], row["mean"], row["from"], row["to"]) == ("R@1", "+5.5", "-", "-")
    (label,) = (label for title, label in charts(page).items() if title.startswith("SEC: R@1"))
    assert "interval" not in label and numbers(label.partition(": ")[2].partition(": ")[2]) == ["+5.5"]
    page = page_of(tmp_path, results_file(tmp_path / "table.json"))
    assert any("95 % interval" in label for label in charts(page).values())

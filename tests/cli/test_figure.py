"""`isosphere figure` and `isosphere report` as a user meets them: a figure's own options, and one line for bad ones."""

import json
from pathlib import Path

import pytest

from commands import has, isosphere, refusal
from isosphere.errors import BadArgument, BadUsage, NotAPlainFile, UnknownOption
from isosphere.paper import find
from isosphere.recipes import options


@pytest.fixture
def run(tmp_path) -> Path:
    """What a run leaves that has been evaluated twice."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.json").write_text(json.dumps(options.to_dict(find("cub200-ms-sec", {}))))
    tests = [{"step": step, "kind": "test", "recall@1": 0.4, "map@r": 0.1 + step / 100} for step in (0, 10)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(test) + "\n" for test in tests))
    return folder


@pytest.mark.parametrize(
    "words",
    ["convergence run --metric map@r --out f", "convergence --metric=map@r --out f run"],
    ids=("after", "before"),
)
def test_a_figures_own_option_may_stand_anywhere(words, run):
    done = isosphere("figure", *words.split(), folder=run.parent)
    assert done.stdout.split() == ["f.png", "f.svg"]
    text = (run.parent / "f.svg").read_text()
    assert "MAP@R (%)" in text and "R@1" not in text.replace("MAP@R", "")


def test_trials_need_no_metric(tmp_path):
    recipe = options.to_dict(find("simclr-cifar10-sec", {"validation.held_out": "0.1", "validation.only": "true"}))
    trial = {"cell": "c", "method": "sec", "recipe": recipe, "last": {"knn": 0.6, "probe_top1": 0.7}, "norms": []}
    (tmp_path / "table5.json").write_text(json.dumps({"runs": [], "trials": [trial]}))
    assert isosphere("figure", "trials", "table5.json", "--out", "f", folder=tmp_path).stdout.split()[1:] == ["f.svg"]
    assert "probe top-1 (%)" in (tmp_path / "f.svg").read_text()


@pytest.mark.parametrize(
    ("words", "kind", "fields"),
    [
        ("convergence run --metrc map@r", UnknownOption, {"option": "--metrc", "near": ("--metric",)}),
        ("convergence run --metric", BadUsage, {}),
        ("convergence run --classes 3", ValueError, {}),
        ("map run --classes many", ValueError, {}),
        ("convergence nowhere", (ValueError, OSError), {}),
        ("convergance run", BadArgument, {"value": "convergance"}),
    ],
)
def test_bad_options_are_one_line_and_nothing_is_written(words, kind, fields, run):
    assert has(refusal("figure", *words.split(), folder=run.parent), kind, **fields)
    assert [entry.name for entry in run.parent.iterdir()] == ["run"]


def test_without_a_name_all_are_listed(tmp_path):
    shown = isosphere("figure", folder=tmp_path).stdout
    assert "convergence" in shown and "feature-maps" in shown


def test_the_report_is_one_page(run):
    assert isosphere("report", "run", "--out", "page.html", folder=run.parent).stdout.strip() == "page.html"
    page = (run.parent / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "run" in page and "MAP@R" in page
    assert has(refusal("report", "nowhere", folder=run.parent), (ValueError, OSError))


def test_the_report_refuses_devices_and_follows_links(run):
    (run.parent / "device.html").symlink_to("/dev/null")
    assert has(refusal("report", "run", "--out", "device.html", folder=run.parent), NotAPlainFile)
    assert has(refusal("report", "run", "--out", "/dev/stdout", folder=run.parent), NotAPlainFile, path="/dev/stdout")
    (run.parent / "link.html").symlink_to("page.html")
    isosphere("report", "run", "--out", "link.html", folder=run.parent)
    assert (run.parent / "link.html").is_symlink() and (run.parent / "page.html").is_file()

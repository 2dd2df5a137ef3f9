"""All figures: two valid files each, the same every time, and nothing imported before it is needed."""

import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest
from PIL import Image

from isosphere import report
from isosphere.errors import BadArgument, MissingPart
from isosphere.paper.figures import FIGURES as PAPERS
from isosphere.report import FIGURES as OURS
from isosphere.report import style

FIGURES = OURS | PAPERS

TEXT = "{http://www.w3.org/2000/svg}text"


def draw(name, make_run, make_results, recipe_dict, out):
    if name in ("turn-sketch", "sec-sketch"):
        return FIGURES[name]([], out)
    if name == "trials":
        records = [("c", "sec", recipe_dict("cub200-ms-sec", validation_only=True), {"map@r": 0.3})]
        return FIGURES[name]([make_results(trials=records)], out)
    runs = [make_run("plain", seed=1), make_run("sec", "cub200-triplet-sec", seed=2)]
    options = {
        "gallery": {"images": np.zeros((24, 8, 8), np.uint8)},
        "feature-maps": {"maps": [np.ones((1, 6, 2, 2))] * 2, "images": np.zeros((2, 1, 8, 8, 3), np.uint8)},
    }
    return FIGURES[name](runs, out, **options.get(name, {}))


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_a_valid_png_and_svg_with_text(name, make_run, make_results, recipe_dict, tmp_path):
    png, svg = draw(name, make_run, make_results, recipe_dict, tmp_path / "new" / "figure.svg")
    assert (png.name, svg.name) == ("figure.png", "figure.svg")
    with Image.open(png) as image:
        image.verify()
        assert round(image.info["dpi"][0]) == 150 and min(image.size) > 300
    root = ET.parse(svg).getroot()
    words = "\n".join("".join(node.itertext()) for node in root.iter(TEXT))
    assert len(words) > 60 and "\N{REPLACEMENT CHARACTER}" not in words
    assert "sketch" in name or "CUB-200-2011" in words  # the title shows the data set
    description = FIGURES[name].description
    assert "\n" not in description and 20 < len(description) < 90


def test_a_figure_is_the_same_every_time_whatever_the_users_settings(make_run, tmp_path):
    run = make_run()
    first = [path.read_bytes() for path in FIGURES["norms"]([run], tmp_path / "a")]
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "other", "axes.facecolor": "red"}):
        second = [path.read_bytes() for path in FIGURES["norms"]([run], tmp_path / "b")]
        assert matplotlib.rcParams["font.size"] == 30  # and they are left alone
    assert first == second and b"<dc:date>" not in first[1]


@pytest.mark.parametrize("name", [name for name in FIGURES if "sketch" not in name])
def test_no_run_is_said(name, tmp_path):
    with pytest.raises(BadArgument) as refused:
        FIGURES[name]([], tmp_path / "f")
    assert refused.value.name == "runs"
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_for_a_run_that_cannot_be_drawn(make_run, tmp_path):
    run = make_run()
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(MissingPart):
        FIGURES["convergence"]([run], tmp_path / "out" / "f")
    assert not (tmp_path / "out").exists()


def test_the_list_of_figures_needs_neither_torch_nor_matplotlib():
    code = (
        "import sys; from isosphere.report import FIGURES; print(sorted({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_options_are_what_the_figure_needs_or_refused():
    assert FIGURES["gallery"].options({"queries": "4", "count": "2"}) == {"queries": [4], "count": 2}
    assert FIGURES["ablation"].options({"metrics": "nmi"}) == {"metrics": ["nmi"]}
    assert FIGURES["ablation"].options({"metrics": "nmi,f1"}) == {"metrics": ["nmi", "f1"]}
    for name, given, value in (
        ("map", {"classes": "all"}, "all"), ("gallery", {"images": "a.png"}, "images"),
        ("cosines", {"metric": "nmi"}, "metric"),
    ):  # fmt: skip
        with pytest.raises(BadArgument) as refused:
            FIGURES[name].options(given)
        assert refused.value.value == value


def test_file_names_keep_their_dots():
    assert [path.name for path in style.files(style.Path("a/v1.2"))] == ["v1.2.png", "v1.2.svg"]
    assert [path.name for path in style.files(style.Path("a/v1.2.svg"))] == ["v1.2.png", "v1.2.svg"]


def test_constraints_keep_their_color_and_the_rest_is_kept_apart():
    styles = style.styles(["a", "b"], ["none", "sec"], ["triplet", "triplet"])
    assert styles == {"a": (style.VERMILION, "-"), "b": (style.BLUE, "-")}
    styles = style.styles(["a", "b", "c"], ["sec", "sec", "none"], ["triplet", "ms", "ms"])
    assert styles["a"][0] == styles["b"][0] == style.BLUE and styles["a"][1] != styles["b"][1] == styles["c"][1]
    styles = style.styles(["a", "b", "b"], ["sec", "sec", "sec"], ["ms", "ms", "ms"])  # two strengths, one with seeds
    assert styles["a"] != styles["b"] and len(styles) == 2
    styles = style.styles(["a", "b", "c"], ["sec", "sec", "none"], ["ms", "ms", "ms"])  # two strengths and a baseline
    assert styles == {"a": (style.BLUE, "-"), "b": (style.BLUE, "--"), "c": (style.VERMILION, "-")}
    many = style.styles(list("abcdefghij"), ["sec"] * 10, ["ms"] * 10)
    assert len(set(many.values())) == 10


def test_panels_are_spread_evenly():
    assert [style.rows_of(count, 4) for count in (1, 4, 5, 8, 9)] == [(1, 1), (1, 4), (2, 3), (2, 4), (3, 3)]


@pytest.mark.parametrize("name", ["FIGURES", "Figure", "inspection", "tables", "write_page"])
def test_a_name_of_the_package_is_the_same_twice(name):
    """A file of the name of a function would take its place once it is imported."""
    first, second = getattr(report, name), getattr(report, name)
    assert first is second and (name in ("FIGURES", "tables") or callable(first))

"""The report page in a real browser: whole at every width, in both themes, by keyboard, and without scripts."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from browser import CONTRAST, assert_clean
from isosphere import runs
from isosphere.metrics import registry
from isosphere.recipes.constraints import RIVALS
from isosphere.report import write_page
from numbers_in import numbers
from written import (
    CLASSES,
    NASTY,
    faces_file,
    norms_file,
    pair_file,
    results_file,
    simclr_file,
    unlabeled,
    write_run,
)

ROWS = "[...document.querySelector('{0} table').tBodies[0].rows].map((row) => row.cells[{1}].textContent)"
ALT, STATUS = "document.querySelector('.hit img').alt", ".gallery [role=status]"
@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> dict[str, list[Path]]:
    folder = tmp_path_factory.mktemp("runs")
    plain, sec = write_run(folder / "plain", 0.5, 0, eta="0.0", alarms=(3, 17)), write_run(folder / "sec", 0.617, 1)
    table, norms = results_file(folder / "rates_cub200.json"), norms_file(folder / "norms.jsonl")
    methods = ("", "-l2reg", "-sec", "-sec-initial")
    four = [write_run(folder / f"paper-cars196-triplet{method}", 0.5, seed) for seed, method in enumerate(methods)]
    found = {"one": [sec], "two": [plain, sec], "four": four, "table": [table], "norms": [norms]}
    found |= {"trials": [simclr_file(folder / "table5_cifar10_backbone=resnet18_cifar.json", finals=False)]}
    found |= {"simclr": [simclr_file(folder / "table5_cifar10.json")]}
    found |= {"faces": [faces_file(folder / "table4_lfw.json")]}
    return found | {"pair": [pair_file(folder / "pair.json")], "flat": [unlabeled(folder / "flat")]}


@pytest.fixture(scope="module")
def pages(sources, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: write_page(paths, folder / f"{name}.html") for name, paths in sources.items()}


@pytest.mark.parametrize("name", ["one", "four", "two", "table", "pair", "norms", "flat", "simclr", "faces", "trials"])
def test_a_page_opens_clean_at_both_widths_and_in_both_themes(browser, pages, name):
    assert_clean(browser, pages[name])


def test_what_files_say_is_never_code(browser, pages):
    browser.open(pages["two"])
    assert browser.run("window.hacked") is None and browser.run("document.scripts.length") == 2
    assert browser.count("[onerror], img[src=x]") == 0
    assert browser.text(".query h3").startswith(NASTY)
    assert browser.run(f"document.body.innerText.includes({json.dumps(NASTY)})")
    # The policy itself refuses whatever would slip through.
    browser.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hacked = 2'}))")
    assert browser.run("window.hacked") is None and any("Security" in one for one in browser.complaints)


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
    order = "document.querySelectorAll('#table0 thead th')[3].ariaSort"
    browser.run("document.querySelectorAll('#table0 thead button')[3].click()")
    assert browser.run(recalls)[0] == "63.5 ± 0.7" and browser.run(recalls)[-1] == "-"
    assert browser.run(order) == "descending"
    browser.run("document.querySelectorAll('#table0 thead button')[3].focus()")
    browser.press("Enter", 13)
    assert browser.run(recalls)[0] == "60.5 ± 0.7" and browser.run(recalls)[-1] == "-"  # what is not there stays last
    assert browser.run(order) == "ascending"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.run("document.querySelectorAll('#table0 thead button')[1].click()")
    assert browser.run(ROWS.format("#table0", 1))[:3] == ["l2reg", "none", "none"]
    assert browser.count("[aria-sort]") == 1


def test_a_table_of_runs_has_means_differences_trials_and_what_diverged(browser, pages):
    browser.open(pages["table"])
    words = browser.text("#table0")
    assert all(one in words for one in ("0 (1 diverged)", "3 tuning", "curves of"))
    rows = "[...document.querySelectorAll('#table0 tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    rows = browser.run(rows)
    assert ["sec - none", "R@1", "+2.0", "+2.0", "+2.0", "2 of 2", "4"] in rows
    assert [" - ".join(RIVALS), "MAP@R", "+0.5", "+0.5", "+0.5", "2 of 2", "4"] in rows


def test_metrics_and_recipes_are_on_the_page(browser, pages):
    browser.open(pages["two"])
    assert browser.run(ROWS.format("#metrics", 0)) == ["plain", "sec"]
    assert browser.run(ROWS.format("#metrics", 2)) == ["50.0", "61.7"]
    assert browser.run(ROWS.format("#recipes", 0)) == ["constraint.eta"]
    sections = browser.run("[...document.querySelectorAll('nav a')].map((a) => document.querySelector(a.hash).id)")
    assert sections == ["warnings", "metrics", "curves", "norms", "directions", "gallery", "recipes"]
    words = browser.run("document.getElementById('warnings').innerText")
    assert "plain, step 3:" in words and f"{NASTY} (2 times," in words and "17" in words and "sec" not in words
    labels = browser.run("[...document.querySelectorAll('svg[role=img]')].map((svg) => svg.getAttribute('aria-label'))")
    ends = {label.partition(" by step: ")[0]: numbers(label) for label in labels}
    turned, radial = "slope of log turn by log norm", registry.metric("radial_share").heading
    assert (ends[turned], ends[radial]) == (["-1", "-1"], ["2e-14", "2e-14"])
    assert all(labels) and len(labels) > 15


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


def test_the_gallery_marks_nothing_without_labels(browser, pages):
    browser.open(pages["flat"])
    assert browser.count(".controls select") == 0, "there is nothing to choose by"
    hits = browser.run("[...document.querySelectorAll('.hit')].map((hit) => [hit.className, hit.textContent[0]])")
    assert len(hits) == 30 and all(hit == ["hit alone", "○"] for hit in hits) and browser.complaints == []
    assert browser.run(ALT).partition(": ")[2].startswith("photos")


def test_the_gallery_marks_no_error_where_a_class_has_one_image(browser, tmp_path):
    browser.open(write_page([write_run(tmp_path / "run", 0.5, 0, per_class=1)], tmp_path / "page.html"))
    hits = browser.run("[...document.querySelectorAll('.hit')].map((hit) => [hit.className, hit.textContent[0]])")
    assert len(hits) == 30 and all(hit == ["hit alone", "○"] for hit in hits)
    assert "no other" in browser.text(".query h3")
    wrong = "[...document.querySelectorAll('.controls option')].find((one) => one.value.includes('wrong')).value"
    browser.run(f"document.querySelector('.controls select').value = {wrong}")
    browser.run("document.querySelector('.controls select').dispatchEvent(new Event('change'))")
    assert not numbers(browser.text(STATUS)) and browser.count(".query") == 0
    assert browser.run(CONTRAST) == [] and browser.complaints == []


def test_the_gallery_pages_decodes_marks_and_filters(browser, pages, sources):
    browser.open(pages["two"])
    titles = "[...document.querySelectorAll('.query h3')].map((node) => node.textContent)"
    assert numbers(browser.text(STATUS)) == ["1", "8", "48"]
    images = "[...document.querySelectorAll('.query img')]"
    decoded = f"Promise.all({images}.map((image) => image.decode().then(() => image.naturalWidth)))"
    seen = browser.run(titles)
    for _ in range(7):
        browser.run("document.querySelectorAll('.controls button')[1].click()")
        assert set(browser.run(decoded)) == {24}
        seen += browser.run(titles)
    assert len(seen) == len(set(seen)) == 48 and numbers(browser.text(STATUS)) == ["8", "8", "48"]
    assert browser.count(".controls button:nth-of-type(2):disabled") == 1
    browser.run("document.querySelectorAll('.controls button')[0].click()")
    assert numbers(browser.text(STATUS))[:2] == ["7", "8"]

    pick = "(() => {{ const list = document.querySelectorAll('.controls select')[{0}]; list.value = {1};"
    pick += "list.dispatchEvent(new Event('change')); }})()"
    browser.run(pick.format(1, json.dumps("gull")))
    assert numbers(browser.text(STATUS)) == ["1", "1", "6"]
    assert all(title.startswith("gull (image ") for title in browser.run(titles))
    # Every neighbor of the first gull, run by run, against the embeddings themselves.
    hits = "[...document.querySelectorAll('.query')[0].querySelectorAll('.hit')].map((hit) => [hit.className, "
    hits += "hit.textContent, hit.querySelector('img').alt])"
    expected = []
    for folder in sources["two"]:
        embedded = runs.read(folder).embedded
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
    assert numbers(browser.run(titles)[0])[-1] == "1" and browser.complaints == []


def test_everything_but_the_gallery_is_there_without_scripts(browser, pages):
    browser.open(pages["two"], scripts=False)
    # Scripts of the page are off; those of the debugger run.
    assert browser.count("table") == 6 and browser.count("svg path") > 100 and browser.count("thead button") == 0
    assert browser.run("document.getElementById('theme').offsetParent") is None
    assert browser.count("noscript tbody tr") == 48
    browser.ask("Emulation.setScriptExecutionDisabled", value=False)

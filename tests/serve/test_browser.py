"""The page in a real browser at the real server: drop, paste, click through, keyboard, filter, phone, hostile names."""

import csv
import json
import os
import shutil
import time

import pytest
from PIL import Image

from browser import CONTRAST, OVERFLOW, Browser, find_browser
from commands import isosphere
from isosphere.serve import Limits
from written import NASTY

LABELS = "[...document.querySelectorAll('.card b')].map((node) => node.textContent)"
PICTURES = "[...document.querySelectorAll('.card img')].every((node) => node.complete && node.naturalWidth > 0)"
SMALL = """[...document.querySelectorAll('button, .button, select, #label')].filter((node) => node.checkVisibility() &&
    node.getBoundingClientRect().height < 34).map((node) => node.outerHTML)"""
COLUMNS = "[...document.querySelectorAll('.card')].filter((one, i, all) => one.offsetTop === all[0].offsetTop).length"
MIDDLE = """(({x, y, width, height}) => [x + width / 2, y + height / 2])(
    document.getElementById('drop').getBoundingClientRect())"""
FOCUSED = "[...document.querySelectorAll('.card')].indexOf(document.activeElement)"
FILE_NAME = '<img src=x onerror="window.hacked = 2">.png'  # a label may have what a file's name may not: a slash


@pytest.fixture(scope="module")
def folder(trained, photos, tmp_path_factory):
    """Photographs of which one has a label and another a name that try to be code."""
    folder = tmp_path_factory.mktemp("browsed")
    files = sorted(photos.rglob("*.png"))
    shutil.copy(files[0], folder / FILE_NAME)
    with open(folder / "list.csv", "w", newline="") as file:
        rows = [(str(path), NASTY if number == 1 else path.parent.name) for number, path in enumerate(files)]
        csv.writer(file).writerows([("path", "label"), *rows, (FILE_NAME, "class0")])
    isosphere("index", trained, "list.csv", "--out", "gallery", folder=folder)
    return folder / "gallery"


@pytest.fixture(scope="module")
def address(folder, serving):
    with serving(folder, Limits(bytes=100_000)) as address:
        yield address


@pytest.fixture(scope="module")
def browser(address, tmp_path_factory):
    if find_browser() is None:
        if os.environ.get("ISOSPHERE_REQUIRE_BROWSER"):
            pytest.fail("ISOSPHERE_REQUIRE_BROWSER is set, but there is no Chromium or Chrome on the PATH")
        pytest.skip("no Chromium or Chrome on the PATH: apt-get install chromium")
    browser = Browser(tmp_path_factory.mktemp("profile"), address.url)
    yield browser
    browser.close()


def until(browser, script, wanted=True):
    """Wait until a script gives this."""
    deadline = time.monotonic() + 60  # others may share the cores
    while (found := browser.run(script)) != wanted:
        assert time.monotonic() < deadline, f"{script} is {found!r}, not {wanted!r}"
        time.sleep(0.02)


def open_page(browser, address, query="", **settings):
    browser.open(f"{address.url}/{query}", **settings)
    until(browser, "document.querySelectorAll('.card').length > 0 && !document.querySelector('[aria-busy]')")


def drop(browser, *files):
    """Files from the desktop onto the page."""
    place = browser.run(MIDDLE)
    data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        browser.ask("Input.dispatchDragEvent", type=kind, x=place[0], y=place[1], data=data)


def choose(browser, field, value):
    """Another value in a field of the filter."""
    browser.run(f"document.getElementById('{field}').value = '{value}'")
    browser.run(f"document.getElementById('{field}').dispatchEvent(new Event('change'))")


def titled(browser, text):
    until(browser, "document.getElementById('title').textContent", text)
    until(browser, "document.querySelector('[aria-busy]') === null")


def test_drop_click_through_and_back(browser, address, photos):
    open_page(browser, address)
    assert browser.text("#name") == "gallery" and browser.text("#size") == "51 images, 11 labels"
    assert browser.count(".card") == 24 and browser.run("document.getElementById('reset').hidden")
    drop(browser, photos / "class3" / "2.png")
    titled(browser, "Most like your photo")
    found = address.ask("/search?k=24", (photos / "class3" / "2.png").read_bytes()).json["results"]
    assert browser.run(LABELS) == [item["label"] for item in found]
    until(browser, PICTURES)
    assert browser.text("#words") == "2.png" and browser.run("document.getElementById('asked').naturalWidth") == 28
    browser.run("document.querySelectorAll('.card')[1].click()")
    titled(browser, f"Most like {found[1]['path'].split('/')[-1]}")
    assert browser.run("location.search") == f"?id={found[1]['id']}"
    browser.run("document.querySelectorAll('.card')[0].click()")
    nearest = address.ask(f"/neighbors/{found[1]['id']}").json["results"][0]["id"]
    until(browser, "location.search", f"?id={nearest}")
    browser.run("history.go(-2)")
    titled(browser, "Most like your photo")
    assert browser.run(LABELS) == [item["label"] for item in found]
    browser.run("document.getElementById('reset').click()")
    titled(browser, "Or begin with one of these")
    assert browser.complaints == []


def test_paste_and_what_is_no_photo(browser, address, photos, tmp_path):
    open_page(browser, address)
    Image.new("RGB", (300, 300)).save(tmp_path / "large.bmp")
    (tmp_path / "text.txt").write_text("no photo")
    (tmp_path / "damaged.png").write_text("no photo, whatever its name says")
    for name, words in (("text.txt", "not a photo"), ("large.bmp", "limit"), ("damaged.png", "Not an image")):
        drop(browser, tmp_path / name)
        until(browser, f"document.getElementById('problem').textContent.includes({json.dumps(words)})")
        assert browser.run("document.getElementById('problem').checkVisibility()")
    pixels = [*(photos / "class5" / "1.png").read_bytes()]
    browser.run(f"""(() => {{
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array({pixels})], "", {{type: "image/png"}}));
        dispatchEvent(new ClipboardEvent("paste", {{clipboardData: data}}));
    }})()""")
    titled(browser, "Most like your photo")
    assert browser.text("#words") == "A pasted photo" and browser.run("document.getElementById('problem').hidden")


def test_the_keyboard_is_enough(browser, address):
    open_page(browser, address)
    for _ in range(12):
        browser.press("Tab", 9)
        if browser.run("document.activeElement.matches('.card')"):
            break
    assert browser.run(FOCUSED) == 0
    outline = browser.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "where the focus is can be seen"
    columns = browser.run(COLUMNS)
    walk = {"ArrowRight": 1, "ArrowDown": 1 + columns, "ArrowLeft": columns, "ArrowUp": 0, "End": 23, "Home": 0}
    for key, place in walk.items():
        code = {"End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}[key]
        browser.press(key, code)
        assert browser.run(FOCUSED) == place
    name = browser.run("document.activeElement.title").split("/")[-1]
    browser.press("Enter", 13)
    titled(browser, f"Most like {name}")
    until(browser, "document.activeElement.id", "title")
    browser.press("Tab", 9)
    assert browser.run(FOCUSED) == 0


def test_a_label_filters_and_an_address_can_be_sent(browser, address):
    open_page(browser, address, "?id=7&label=class4")
    titled(browser, f"Most like {address.ask('/neighbors/7').json['query']['path'].split('/')[-1]}")
    assert browser.run(LABELS) == ["class4"] * 5 and browser.run("document.getElementById('label').value") == "class4"
    until(browser, "[...document.querySelectorAll('#labels option')].map((one) => one.value).join()", "class4")
    choose(browser, "label", "class6")
    until(browser, f"{LABELS}.join()", ",".join(["class6"] * 5))
    browser.run("document.getElementById('reset').click()")
    titled(browser, "Or begin with one of these")
    choose(browser, "label", "class6")
    titled(browser, "class6")
    assert browser.run(LABELS) == ["class6"] * 5
    choose(browser, "label", "nobody")
    until(browser, "document.getElementById('problem').textContent", "There is no such label.")


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(browser, address, photos, width, scheme):
    open_page(browser, address, width=width, scheme=scheme)
    for searched in (False, True):
        if searched:
            drop(browser, photos / "class3" / "2.png")
            titled(browser, "Most like your photo")
        assert browser.run(OVERFLOW) == [] and browser.run("document.documentElement.scrollWidth") == width
        assert browser.run(CONTRAST) == [] and browser.complaints == []
    assert browser.run(SMALL) == [], "a finger finds them"


def test_names_and_labels_are_never_code(browser, address):
    browser.open(f"{address.url}/?label=%3Cimg%20src=x%20onerror=alert(1)%3E")
    until(browser, "document.getElementById('problem').textContent", "There is no such label.")
    items = address.ask("/images?k=96").json["results"]
    items = [item for item in items if NASTY == item["label"] or FILE_NAME in item["path"]]
    assert len(items) == 2
    for item in items:
        open_page(browser, address, f"?id={item['id']}")
        until(browser, "document.querySelectorAll('.card').length", 24)
    choose(browser, "k", "96")
    until(browser, "document.querySelectorAll('.card').length", 50)
    assert NASTY in browser.run(LABELS) and FILE_NAME in browser.text("#title")
    assert browser.run("window.hacked") is None and browser.count("[onerror], img[src=x], #found script") == 0
    assert browser.complaints == []
    # The policy itself refuses whatever would slip through.
    for kind, code in (("Script", "setAttribute('onerror', '')"), ("HTML", "insertAdjacentHTML('beforeend', '<p>')")):
        with pytest.raises(RuntimeError, match=f"Trusted{kind}"):
            browser.run(f"document.body.{code}")
    browser.run("document.body.append(Object.assign(document.createElement('a'), {href: 'javascript:hacked = 3'}))")
    browser.run("document.body.lastChild.click()")
    time.sleep(0.2)
    assert browser.run("window.hacked") is None


def test_a_server_that_is_gone_is_said(browser, folder, serving, tmp_path_factory):
    with serving(folder, Limits()) as address:
        other = Browser(tmp_path_factory.mktemp("profile"), address.url)
        try:
            open_page(other, address)
            gone = True
        except BaseException:
            other.close()
            raise
    try:
        assert gone
        other.run("document.querySelectorAll('.card')[1].click()")
        until(other, "document.getElementById('problem').textContent.startsWith('The server does not answer')")
    finally:
        other.close()

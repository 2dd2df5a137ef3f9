"""Pages with pictures: what was found, groups of images, doubtful labels. One HTML file each."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from isosphere.data.decoding import decode
from isosphere.report.page.markup import listed, note, section, text
from isosphere.report.page.shell import write_sections

from .gallery import Gallery
from .reading import thumbnail

MOST = 600  # pictures on a page, which keeps it at some megabytes


@dataclass(frozen=True)
class Picture:
    """A small WebP, or none, with what stands under it and what pointing at it says; "right", "wrong" or neither."""

    image: bytes
    words: str
    about: str
    mark: str = ""


@dataclass(frozen=True)
class Shelf:
    """Pictures under a title, next to the one that they belong to, if there is one."""

    title: str
    pictures: Sequence[Picture]
    asked: Picture | None = None
    words: str = ""


def picture(gallery: Gallery, row: int, words: str = "", mark: str = "") -> Picture:
    """A row of a gallery; pointing at it shows its label and path."""
    label = gallery.labels[row] if gallery.labeled else ""
    about = ", ".join(filter(None, (words, label, gallery.paths[row])))
    return Picture(gallery.thumbnail(row), " ".join(filter(None, (words, label))), about, mark)


def file_picture(path: str, words: str = "") -> Picture:
    """A file that is not in the gallery."""
    return Picture(thumbnail(decode(path)), words or Path(path).name, path)


def write_shelves(
    out: Path, heading: str, names: Sequence[str], sentences: Sequence[str], shelves: Iterable[Shelf], charts: str = ""
) -> Path:
    """A page of shelves, as many as there is room for; the page says how many it leaves out."""
    parts: list[str] = []
    count = left = 0
    for shelf in shelves:
        count += len(shelf.pictures) + 1
        if count > MOST and parts:
            left += 1
        else:
            parts.append(_drawn(shelf))
    said = [*sentences, f"{left} more are left out, to keep the page small."] if left else sentences
    drawn = f'<div class="shelves">{"".join(parts)}</div>' if parts else note("There is nothing to show.")
    sections = [section("summary", "Summary", listed(said)), charts, section("pictures", "Pictures", drawn)]
    return write_sections(out, heading, names, sections)


def _drawn(shelf: Shelf) -> str:
    asked = f'<div class="asked">{_figure(shelf.asked)}</div>' if shelf.asked else ""
    items = "".join(f"<li>{_figure(one)}</li>" for one in shelf.pictures)
    words = note(shelf.words) if shelf.words else ""
    alone = " alone" * (not shelf.asked)
    body = f'<div class="body{alone}">{asked}<ol class="pictures">{items}</ol></div>'
    return f'<article class="query shelf"><h3>{text(shelf.title)}</h3>{words}{body}</article>'


def _figure(one: Picture) -> str:
    """A picture in its frame; a mark is a sign, a word and a line, not only a color."""
    sign = {"right": "✓ ", "wrong": "✗ "}.get(one.mark, "")
    spoken = f"{one.mark}: {one.about}" if one.mark else one.about
    if one.image:
        data = base64.b64encode(one.image).decode()
        shown = f'<img src="data:image/webp;base64,{data}" alt="{text(spoken)}">'
    else:
        shown = f'<div class="none">{text(one.about)}</div>'
    caption = f"<figcaption>{sign}{text(one.words)}</figcaption>"
    return f'<figure class="hit {one.mark}" title="{text(spoken)}">{shown}{caption}</figure>'

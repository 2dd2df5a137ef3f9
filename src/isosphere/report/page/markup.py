"""Pieces of HTML; whatever comes from a file passes through `text`, and nothing else reaches the page."""

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any


def text(value: Any) -> str:
    """Any value as text that is safe between tags and in quoted attributes."""
    return html.escape(str(value), quote=True)


def number(value: float | None) -> str:
    """A number in three digits, whole if it is large; a dash for none."""
    if value is None:
        return "-"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.1f}"


def embedded(values: Any) -> str:
    """JSON that can stand in a script element: no tag can begin in it."""
    return json.dumps(values, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]], words: int = 1) -> str:
    """A table that the page's script makes sortable; the first `words` columns are words, the rest are numbers."""
    short = ' class="w"' if words < len(head) else ""  # words before numbers keep to one line
    kinds = [short if number < words else ' class="n"' for number in range(len(head))]
    top = "".join(f'<th scope="col"{kind}>{text(name)}</th>' for name, kind in zip(head, kinds, strict=True))
    body = []
    for row in rows:
        first, *others = [text(value) for value in row]
        cells = "".join(f"<td{kind}>{value}</td>" for value, kind in zip(others, kinds[1:], strict=True))
        body.append(f'<tr><th scope="row"><span>{first}</span></th>{cells}</tr>')
    # The caption stands outside of what scrolls, so that it is never cut off.
    return (
        f'<figure class="tabled"><figcaption>{text(caption)}</figcaption>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table class="sortable">'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody></table></div></figure>"
    )


def section(name: str, title: str, *parts: str) -> str:
    """A part of the page that its menu points to; nothing where it would be empty."""
    filled = "".join(parts)
    return f'<section id="{name}"><h2>{text(title)}</h2>{filled}</section>' if filled else ""


def charts(*drawn: str) -> str:
    """Charts next to each other; nothing where there are none."""
    return f'<div class="charts">{"".join(drawn)}</div>' if any(drawn) else ""


def titled(title: str, svg: str) -> str:
    """A chart under its title; nothing where nothing is drawn."""
    return f'<figure class="chart"><figcaption>{text(title)}</figcaption>{svg}</figure>' if svg else ""


def note(sentence: str) -> str:
    """A paragraph of explanation."""
    return f'<p class="note">{text(sentence)}</p>'


def folded(summary: str, content: str, unfolded: bool = False) -> str:
    """Content behind a line to click on."""
    return f"<details{' open' * unfolded}><summary>{text(summary)}</summary>{content}</details>" if content else ""


def listed(sentences: Iterable[str]) -> str:
    """Sentences as a list; nothing where there are none."""
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""

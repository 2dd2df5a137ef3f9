"""A page around its sections: one HTML file without a network, safe against what names and paths may hold."""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isosphere import files
from isosphere.report.page.markup import embedded, folded, text

HERE = Path(__file__).parent
NAMES = 4  # in the heading; the others are folded


def write_sections(
    out: Path, heading: str, names: Sequence[str], sections: Sequence[str], shown: Sequence[dict[str, Any]] = ()
) -> Path:
    """Write a page to `out`, behind any links; the page that is there stays until the new one is whole.

    `names` say what the page is about. `shown` is what the page's script draws in galleries.
    """
    more = len(names) - NAMES
    script = (HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "title": text(f"{', '.join(names[:NAMES])}{f' and {more} more' if more > 0 else ''} - isosphere"),
        "heading": text(heading),
        "names": f"<p>{text(', '.join(names[:NAMES]))}</p>"
        + (folded(f"and {more} more", f"<p>{text(', '.join(names[NAMES:]))}</p>") if more > 0 else ""),
        "policy": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "style": (HERE / "page.css").read_text(encoding="utf-8"),
        "menu": _menu(sections),
        "sections": "".join(sections),
        "data": embedded(list(shown)),
        "script": script,
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    page = re.sub(r"\[\[(\w+)\]\]", lambda found: parts[found[1]], template)  # once: what is put in is not searched
    files.write(out, page, "replace")  # a file's name may be no UTF-8
    return out


def _menu(sections: Sequence[str]) -> str:
    """Links to the sections that have content."""
    found = [re.match(r'<section id="(\w+)"><h2>(.*?)</h2>', section) for section in sections]
    return "".join(f'<li><a href="#{one[1]}">{one[2]}</a></li>' for one in found if one)

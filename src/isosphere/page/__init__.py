"""The report: one self-contained HTML page about runs, a comparison of them, or a whole table of `reproduce`."""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from isosphere import files
from isosphere.page.gallery import gallery_section
from isosphere.page.markup import embedded, folded, text
from isosphere.page.recipes import recipes_section
from isosphere.page.results import results_section
from isosphere.page.runs import run_sections
from isosphere.page.sources import read_sources
from isosphere.page.styles import arm_styles, run_styles

HERE = Path(__file__).parent
NAMES = 4  # in the heading; the others are folded


def write_page(sources: Sequence[Path], out: Path) -> Path:
    """Write the page about run folders, monitors' files and results files to `out`; what one lacks is told on it."""
    files.writable(out)
    runs, tables = read_sources([Path(source) for source in sources])
    for run, style in zip(runs, run_styles(runs), strict=True):
        run.style = style
    gallery, shown = gallery_section(runs)
    sections = [*run_sections(runs), gallery, recipes_section(runs)] if runs else []
    styles = arm_styles(runs, tables)
    sections += [results_section(results, f"table{number}", styles) for number, results in enumerate(tables)]
    names = [run.name for run in runs] + [results.name for results in tables]
    more = len(names) - NAMES
    script = (HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "title": text(f"{', '.join(names[:NAMES])}{f' and {more} more' if more > 0 else ''} - isosphere"),
        "heading": text(_heading(len(runs), len(tables))),
        "names": f"<p>{text(', '.join(names[:NAMES]))}</p>"
        + (folded(f"and {more} more", f"<p>{text(', '.join(names[NAMES:]))}</p>") if more > 0 else ""),
        "policy": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "style": (HERE / "page.css").read_text(encoding="utf-8"),
        "menu": _menu(sections),
        "sections": "".join(sections),
        "data": embedded(shown),
        "script": script,
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    page = re.sub(r"\[\[(\w+)\]\]", lambda found: parts[found[1]], template)  # once: what is put in is not looked at
    files.write(out, page, "replace")  # a file's name may be no UTF-8
    return out


def _heading(runs: int, tables: int) -> str:
    words = ["one run"] if runs == 1 else [f"{runs} runs compared"] if runs else []
    words += ["a table of runs"] if tables == 1 else [f"{tables} tables of runs"] if tables else []
    return f"Report: {' and '.join(words)}"


def _menu(sections: Sequence[str]) -> str:
    """Links to the sections that have content."""
    found = [re.match(r'<section id="(\w+)"><h2>(.*?)</h2>', section) for section in sections]
    return "".join(f'<li><a href="#{one[1]}">{one[2]}</a></li>' for one in found if one)

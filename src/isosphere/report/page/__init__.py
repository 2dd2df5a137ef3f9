"""The report: one self-contained HTML page about runs, a comparison of them, or a whole table of `reproduce`."""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from isosphere import files
from isosphere.report import style
from isosphere.report.page.gallery import gallery_section
from isosphere.report.page.markup import embedded, folded, text
from isosphere.report.page.measured import metrics_section, warnings_section
from isosphere.report.page.panels import curves_section, directions_section, norms_section
from isosphere.report.page.recipes import recipes_section
from isosphere.report.page.results import results_section
from isosphere.report.page.sources import read_sources

HERE = Path(__file__).parent
NAMES = 4  # in the heading; the others are folded


def write_page(sources: Sequence[Path], out: Path) -> Path:
    """Write the page about run folders, monitors' files and files of results to `out`, behind any links.

    What a run lacks is said on the page. The page that is there stays until the new one is whole.
    """
    files.writable(out)
    runs, tables = read_sources([Path(source) for source in sources])
    names = [run.name for run in runs] + [results.name for results in tables]
    styles = style.styles_of([run.name for run in runs], [run.values for run in runs])
    sections: list[str] = []
    shown: list[dict] = []
    if runs:
        gallery, shown = gallery_section(runs, styles)
        measured = [warnings_section(runs), metrics_section(runs)]
        charts = [make(runs, styles) for make in (curves_section, norms_section, directions_section)]
        sections = [*measured, *charts, gallery, recipes_section(runs)]
    methods = list(dict.fromkeys(record["method"] for its in tables for record in (*its.runs, *its.trials)))
    of_methods = style.styles(methods, methods, [""] * len(methods))
    sections += [results_section(results, f"table{number}", of_methods) for number, results in enumerate(tables)]
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
    page = re.sub(r"\[\[(\w+)\]\]", lambda found: parts[found[1]], template)  # once: what is put in is not searched
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

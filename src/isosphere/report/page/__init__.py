"""The report: one self-contained HTML page about runs, a comparison of them, or a whole table of `reproduce`."""

from collections.abc import Sequence
from pathlib import Path

from isosphere import files
from isosphere.report import style
from isosphere.report.page.gallery import gallery_section
from isosphere.report.page.measured import metrics_section, warnings_section
from isosphere.report.page.panels import curves_section, directions_section, norms_section
from isosphere.report.page.recipes import recipes_section
from isosphere.report.page.results import results_section
from isosphere.report.page.shell import write_sections
from isosphere.report.page.sources import read_sources


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
    return write_sections(out, _heading(len(runs), len(tables)), names, sections, shown)


def _heading(runs: int, tables: int) -> str:
    words = ["one run"] if runs == 1 else [f"{runs} runs compared"] if runs else []
    words += ["a table of runs"] if tables == 1 else [f"{tables} tables of runs"] if tables else []
    return f"Report: {' and '.join(words)}"

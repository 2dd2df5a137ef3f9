"""What README may say of results: facts in its sentences, rows of its tables. Any other number is a problem."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

from evidence_parts.answers import FACES, PROBES, equal_rates
from evidence_parts.common import (
    DATASETS,
    LOSSES,
    METRICS,
    PAIRS,
    THREE,
    benchmark,
    difference,
    label,
    only,
    rendered,
    results,
    retrieval,
    signed,
)
from evidence_parts.heads import head_gains
from evidence_parts.numbers import loose, numbers
from evidence_parts.simclr import SMALL
from evidence_parts.speed import LOSSES as TIMED
from evidence_parts.speed import SIZES, loss_row, ratio
from isosphere.report.differences import Difference
from isosphere.report.tables import spread, values_of

NEEDED = ("SEC less baseline, R@1", "a fast head")  # what README must say, in one of its forms
METHODS = {
    "none": ("no constraint", "baseline"),
    "sec": ("SEC",),
    "sec-relative": ("relative SEC", "relative SEC (ours)"),
}
Row = list[set[str]]  # the forms of each cell


@lru_cache
def facts() -> dict[str, list[str]]:
    """Each fact in the forms that README may use."""
    runs, characters, faces = retrieval(), rendered(), results("faces_lfw").runs
    compared = {
        "": runs, "equal rates": equal_rates(runs), "characters": characters,
        "8,000 steps": results("cars196_triplet_8000").runs,
        **{name: results(f"retrieval_{dataset}").runs for dataset, name in DATASETS.items()},
    }  # fmt: skip
    found = {}
    for (where, its), (method, than), (name, key) in product(compared.items(), PAIRS, METRICS):
        if {method, than} <= {run["method"] for run in its}:
            words = f"{label(method)} less {label(than)}, {name}" + (f", {where}" if where else "")
            found[words] = difference_forms(difference(its, key, method, than), name)
    for (name, key), (where, its) in product((*FACES, *PROBES), (("faces", faces), ("SimCLR", results(SMALL).runs))):
        if key in its[0]["last"]:
            found[f"{where}, {name}"] = difference_forms(difference(its, key), name)
    course = only(results("rates_cub200").runs, cell="cub200-ms-lr5e-05")
    found["SEC at the paper's rate"] = [f"{100 * difference(course, 'recall@1').mean:.1f} points at the paper's rate"]
    for method, (name, key) in product(THREE, METRICS):
        lasts = [run["last"] for run in only(characters, method=method)]
        found[f"characters, {method}, {name}"] = [spread(values_of(lasts, key))]
    lost = sorted(-100 * value for dataset in DATASETS for value in head_gains(dataset, 100))
    found["a fast head"] = [f"{lost[0]:.0f} to {lost[-1]:.0f} points of MAP@R"]
    for name, key in FACES:
        cost = sorted(-100 * value for its in difference(faces, key).cells.values() for value in its)
        found[f"faces, {name}, by seed"] = [f"{cost[0]:.0f} to {cost[-1]:.0f} points"]
    for row in benchmark("metrics_cpu")["rows"]:
        for who in ("ours", "peer"):
            found[f"{row['name']}, {who}"] = [f"{row[who]:.1f} s", f"{row[who]:.2f} s"]
    return found


def difference_forms(found: Difference, metric: str) -> list[str]:
    """A difference and its interval, as sentences have them."""
    mean, plain = signed(found.mean), f"{100 * abs(found.mean):.1f}"
    forms = [f"{one} {words}" for one in (plain, mean) for words in (f"points of {metric}", f"of {metric}", "points")]
    if found.low is None or found.high is None:
        return forms
    low, high = signed(found.low), signed(found.high)
    unsigned = f"{low.lstrip('+')} to {high.lstrip('+')}"
    return [*forms, f"{mean} ({low} to {high})", f"{low} to {high}", unsigned, f"({mean.lstrip('+')}, {unsigned})"]


@lru_cache
def rows() -> dict[str, list[Row]]:
    """The rows that tables may have, whole or in part, by their first cell."""
    found: dict[str, list[Row]] = {}
    for (method, words), dataset, metric in product(METHODS.items(), DATASETS, ("map@r", "recall@1")):
        row = []
        for loss in LOSSES:
            its = only(results(f"retrieval_{dataset}").runs, cell=f"{dataset}-{loss}", method=method)
            shown = spread(values_of([run["last"] for run in its], metric))
            row.append({shown, shown.split(" ")[0]})
        for word in words:
            found.setdefault(word, []).append(row)
    for loss, name in TIMED.items():
        ratios = [ratio(loss_row(loss, machine, batch)) for machine in SIZES for batch in SIZES[machine]]
        forms = [{"peer out of memory"} if one is None else {f"{one:.{d}f} x" for d in range(3)} for one in ratios]
        found[name] = [forms]
    return found


def is_row(cells: Sequence[str], known: Row) -> bool:
    """Whether cells are those of a row, in its order, some perhaps left out."""
    rest = iter(known)
    return all(any(cell.replace(",", "") in forms for forms in rest) for cell in cells)


def table_problems(text: str) -> tuple[str, list[str]]:
    """The text without the rows that are right, and what is wrong with the others whose first cell is known."""
    known, kept, problems = rows(), [], []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else [""]
        label = re.sub(r"^\*\*.*?\*\*:? ", "", cells[0])
        if label not in known or not numbers(line):
            kept.append(line)
        elif not any(is_row(cells[1:], row) for row in known[label]):
            problems.append(f"README.md: no results have this row: {line.strip()}")
    return "\n".join(kept), problems


def check(text: str) -> list[str]:
    """What README says that the results do not."""
    rest, problems = table_problems(text)
    forms = facts()
    plain = " ".join(text.split())
    problems += [
        f"README.md does not say: {forms[name][0]}" for name in NEEDED if not any(f in plain for f in forms[name])
    ]
    stray = loose(rest, facts=[form for its in forms.values() for form in its])
    return problems + [f"README.md: {one} is in no results" for one in stray]

"""The sections about what runs measured: warnings, metrics, and what is missing."""

from collections.abc import Iterable, Mapping, Sequence

from isosphere.metrics import registry
from isosphere.metrics.registry import Metric
from isosphere.recipes import labels
from isosphere.report.page.comparisons import comparisons
from isosphere.report.page.markup import listed, note, number, percent, section, table
from isosphere.report.tables import DETAILS, tested_on, untrained_rows
from isosphere.runs import RunFolder

LAST_BATCH = "norms of the last training batch"
NORMS = tuple(map(registry.metric, registry.NORMS))


def shown_metrics(found: Iterable[Mapping[str, float]]) -> tuple[list[Metric], list[Metric]]:
    """The metrics of a first table, with an unknown task's last, and those of a second one about faces."""
    names = dict.fromkeys(name for one in found for name in one if name not in ("kind", "step"))
    return registry.shown(names), registry.pair_details(names)


def explained(metrics: Iterable[Metric]) -> str:
    """Paragraphs on what these metrics are, each once."""
    return "".join(map(note, dict.fromkeys(one.about for one in metrics if one.about)))


def warnings_section(runs: Sequence[RunFolder]) -> str:
    """Every warning of every run in its first words, and how often it was raised."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for run in runs:
        for line in run.of_kind("warning"):
            found.setdefault((run.name, str(line.get("warning"))), []).append((line["step"], str(line.get("text"))))
    sentences = []
    for (name, _), its in found.items():
        (step, words), (last, _) = its[0], its[-1]
        again = f" ({len(its)} times, at last in step {last})" if len(its) > 1 else ""
        sentences.append(f"{name}, step {step}: {words}{again}")
    box = f'<div class="warnings" role="note">{listed(sentences)}</div>' if sentences else ""
    return section("warnings", "Warnings", box)


def metrics_section(runs: Sequence[RunFolder]) -> str:
    """The last evaluation of every run, the best of R@1, and the norms."""
    metrics, more = shown_metrics([run.last for run in runs])
    untrained = untrained_rows({run.name: _measures(run.untrained) for run in runs})
    best = [registry.metric(registry.leading("retrieval"))]
    best = [one for one in best if any(one.key in run.oracle for run in runs)]
    head = ["run", "state", *[one.heading for one in metrics], *[f"best {one.heading}" for one in best]]
    head += [one.column for one in NORMS]
    rows = []
    for name, state, last, oracle in (
        *((name, "before training", found, {}) for name, found in untrained),
        *((run.name, state, last, run.oracle) for run in runs for state, last in _checkpoints(run)),
    ):
        measured = [one.shown(last.get(one.key)) for one in metrics]
        measured += [percent(oracle.get(one.key)) for one in best]
        rows.append([name, state, *measured, *[number(last.get(one.key)) for one in NORMS]])
    said = [*comparisons(runs), *_cautions(runs)]
    if best:
        said.append("The best step is picked on the test classes themselves: it is no result, only a bound.")
    watched = [run.name for run in runs if run.watched]
    if 0 < len(watched) < len(runs):
        said.append(f"{', '.join(watched)}: {LAST_BATCH}")
    found = [{"last": run.last, "tested": run.about.get("tested"), "recipe": run.values} for run in runs]
    found = [one for one, run in zip(found, runs, strict=True) if not run.watched]
    if not metrics:  # images without labels: those of an unfinished run are what the others' are
        found = [one for one in found if one["tested"]] or found
    title = LAST_BATCH if len(watched) == len(runs) else tested_on(metrics, found)
    shown = table(title, head, rows, words=2) + explained(metrics)
    if more:
        rows = [[run.name, *[one.shown(run.last.get(one.key)) for one in more]] for run in runs]
        shown += table(DETAILS, ["run", *[one.heading for one in more]], rows) + explained(more)
    return section("metrics", "Metrics", shown, listed(said), _missing(runs))


def _checkpoints(run: RunFolder) -> list[tuple[str, dict[str, float]]]:
    """The weights that were measured at the end: with validation the best, and then the last."""
    if not run.ended:
        return [(_state(run), run.last)]
    rows = [(f"best by validation, step {run.last['step']:.0f}", run.last)]
    return rows + [(f"last; {_state(run)}", run.ended)] * (_measures(run.ended) != _measures(run.last))


def _measures(found: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in found.items() if name != "step"}


def _missing(runs: Sequence[RunFolder]) -> str:
    """What the runs lack, a line for all that lack the same."""
    lost: dict[str, list[str]] = {}
    for run in runs:
        _ = run.embedded  # notes what it cannot read
        for problem in dict.fromkeys(run.problems):
            lost.setdefault(problem, []).append(run.name)
    lines = listed(f"{', '.join(names)}: {problem}" for problem, names in lost.items())
    return f'<div class="missing" role="note"><h3>What is missing</h3>{lines}</div>' if lost else ""


def _state(run: RunFolder) -> str:
    done = max([run.saved, *(line["step"] for line in run.lines)])
    if run.watched:
        return f"watched, {done} steps"
    if run.finished:
        return f"finished, {done} steps"
    loop = labels.group(run.values, "loop")
    epochs = loop.get("unit") == "epochs"
    return f"unfinished, {done}{' steps' * epochs} of {loop.get('steps', '-')}{' epochs' * epochs}"


def _cautions(runs: Sequence[RunFolder]) -> list[str]:
    """What readers must know of the images, once for all runs that it is true of."""
    sets = dict.fromkeys(labels.dataset(run.values) for run in runs if labels.group(run.values, "data"))
    cautions = [f"the runs are of different images, so their metrics do not compare: {', '.join(sets)}"]
    cautions *= len(sets) > 1
    said: dict[str, list[str]] = {}
    for run in runs:
        for words in run.about.get("notes") or ():
            said.setdefault(f"of the data: {words}", []).append(run.name)
        if run.last.get("singletons"):
            alone = f"{run.last['singletons']:.0f} queries have no other image of their class and count as wrong"
            said.setdefault(alone, []).append(run.name)
        for metric in registry.main(run.last)[:1]:
            course = run.course("test", metric.key)
            before = run.untrained.get(metric.key, course[0][1] if course and course[0][0] == 0 else 0.0)
            if metric.key in registry.MAIN and run.last[metric.key] < before:
                what = "untrained backbone" if metric.key in run.untrained else "untrained network"
                worse = f"{metric.heading} is below that of the {what} ({percent(before)} %)"
                said.setdefault(worse, []).append(run.name)
    for what, its in said.items():
        cautions.append(f"{'all runs' if len(its) == len(runs) > 1 else ', '.join(its)}: {what}")
    return cautions

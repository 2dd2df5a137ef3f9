"""The sections about runs, of folders or of monitors' files: alarms, metrics and what is missing."""

from collections.abc import Sequence

from isosphere.figures.words import dataset
from isosphere.page.changes import comparisons
from isosphere.page.markup import listed, note, number, percent, section, table
from isosphere.page.metrics import ACCURACY, EXPLAINED, MAIN, NORMS, main_metrics, metric_names, parted
from isosphere.page.panels import curves_section, directions_section, norms_section
from isosphere.page.recipes import value_of
from isosphere.page.sources import Run
from isosphere.tables import TELLS, heading

LAST_BATCH = "norms of the last training batch"


def run_sections(runs: Sequence[Run]) -> list[str]:
    """All sections about the runs, but for the gallery and the recipes."""
    shown = alarms_section, metrics_section, curves_section, norms_section, directions_section
    return [make(runs) for make in shown]


def alarms_section(runs: Sequence[Run]) -> str:
    """Every alarm of every run in its first words, and how often it was raised."""
    told: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for run in runs:
        for line in run.lines:
            if line["kind"] == "alarm":
                told.setdefault((run.name, str(line.get("alarm"))), []).append((line["step"], str(line.get("text"))))
    sentences = []
    for (name, _), its in told.items():
        (step, words), (last, _) = its[0], its[-1]
        again = f" ({len(its)} times, at last in step {last})" if len(its) > 1 else ""
        sentences.append(f"{name}, step {step}: {words}{again}")
    box = f'<div class="alarms" role="note">{listed(sentences)}</div>' if sentences else ""
    return section("alarms", "Alarms", box)


def metrics_section(runs: Sequence[Run]) -> str:
    """The last evaluation of every run, the best beside it, and the norms."""
    metrics, more = parted(metric_names([run.last for run in runs]))
    best = [name for name in ("recall@1",) if any(name in run.oracle for run in runs)]
    head = ["run", "state", *metrics.values(), *["best R@1" for _ in best], *NORMS.values()]
    rows = []
    for run in runs:
        measured = [percent(run.last.get(name)) for name in metrics] + [percent(run.oracle.get(name)) for name in best]
        rows.append([run.name, _state(run), *measured, *[number(run.last.get(name)) for name in NORMS]])
    told = [*comparisons(runs), *_warnings(runs)]
    if best:
        told.append("The best step is picked on the test classes themselves: it is no result, only a bound.")
    watched = [run.name for run in runs if run.watched]
    if 0 < len(watched) < len(runs):
        told.append(f"{', '.join(watched)}: {LAST_BATCH}")
    found = [run for run in runs if not run.watched]
    found = [{"last": run.last, "tested": run.about.get("tested"), "recipe": run.recipe} for run in found]
    if not metrics:  # images without labels: those of an unfinished run are what the others' are
        found = [one for one in found if one["tested"]] or found
    title = LAST_BATCH if len(watched) == len(runs) else heading(metrics, found)
    shown = table(title, head, rows, words=2) + (note(ACCURACY) if "accuracy" in metrics else "")
    if more:
        rows = [[run.name, *[percent(run.last.get(name)) for name in more]] for run in runs]
        shown += table(TELLS, ["run", *more.values()], rows) + note(EXPLAINED)
    return section("metrics", "Metrics", shown, listed(told), _missing(runs))


def _missing(runs: Sequence[Run]) -> str:
    """What the runs lack, a line for all that lack the same."""
    lost: dict[str, list[str]] = {}
    for run in runs:
        for sentence in run.missing:
            lost.setdefault(sentence, []).append(run.name)
    lines = listed(f"{', '.join(names)}: {sentence}" for sentence, names in lost.items())
    return f'<div class="missing" role="note"><h3>What is missing</h3>{lines}</div>' if lost else ""


def _state(run: Run) -> str:
    done = max([run.saved, *(line["step"] for line in run.lines)])
    if run.watched:
        return f"watched, {done} steps"
    if run.finished:
        return f"finished, {done} steps"
    epochs = value_of(run.recipe, "loop.unit") == "epochs"
    return f"unfinished, {done}{' steps' * epochs} of {value_of(run.recipe, 'loop.steps')}{' epochs' * epochs}"


def _warnings(runs: Sequence[Run]) -> list[str]:
    """What is to be known of the images, said once of all runs that it is true of."""
    sets = dict.fromkeys(dataset(run.recipe) for run in runs if isinstance(run.recipe.get("data"), dict))
    told = [f"the runs are of different images, so their metrics do not compare: {', '.join(sets)}"] * (len(sets) > 1)
    said: dict[str, list[str]] = {}
    for run in runs:
        if run.about.get("deviation"):
            said.setdefault(f"of the data: {run.about['deviation']}", []).append(run.name)
        if run.last.get("singletons"):
            alone = f"{run.last['singletons']:.0f} queries have no other image of their class and count as wrong"
            said.setdefault(alone, []).append(run.name)
        for name, title in list(main_metrics(run.last).items())[:1]:
            course = run.course("test", name)
            if name in MAIN and course and course[0][0] == 0 and run.last[name] < course[0][1]:
                worse = f"{title} is below that of the untrained network ({percent(course[0][1])} %)"
                said.setdefault(worse, []).append(run.name)
    for what, its in said.items():
        told.append(f"{'all runs' if len(its) == len(runs) > 1 else ', '.join(its)}: {what}")
    return told

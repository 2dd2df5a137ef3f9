"""What the screen shows of a run: a progress bar, and lines above it."""

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from isosphere import terminal
from isosphere.metrics.registry import NORM_MEAN, NORM_VARIANCE, choosing, is_own, metric


class Screen:
    """A bar of so many steps, named after its run; with `shown=False` nothing is printed."""

    def __init__(self, name: str, steps: int, done: int, shown: bool) -> None:
        self.console = Console(file=terminal.stderr(), quiet=not shown)
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TimeRemainingColumn(), TextColumn("{task.fields[note]}"), console=self.console, disable=not shown,
        )  # fmt: skip
        self.bar = self.progress.add_task(escape(name), total=steps, completed=done, note="")

    def __enter__(self) -> "Screen":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def advance(self, step: int, note: str = "") -> None:
        """Move the bar; a note replaces the one next to it."""
        self.progress.update(self.bar, completed=step)
        if note:
            self.progress.update(self.bar, note=note)

    def say(self, text: str) -> None:
        """A line above the bar, which also a log file gets."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def warning(self, step: int, words: str) -> None:
        """A warning in bold."""
        self.say(f"[bold]step {step:>6}  {escape(words)}[/bold]")

    def measured(self, step: int, headline: str, found: dict[str, float], what: str = "") -> None:
        """An evaluation of weights at a step in a line, and its headline next to the bar; `what` was measured."""
        names = [headline, *(name for name in (choosing("retrieval"),) if name in found)]
        shown = [f"{metric(name).heading} {found[name]:6.2%}" for name in names if metric(name).unit == "%"]
        self.advance(step, *shown[:1])
        shown += [f"{name} {value:.4g}" for name, value in found.items() if is_own(name)]
        norms = f"norm {found[NORM_MEAN]:.3g} (variance {found[NORM_VARIANCE]:.3g})"
        self.say("  ".join([f"step {step:>6}", *filter(None, [what]), *shown, norms]))

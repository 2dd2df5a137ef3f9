"""What a page is made from, read leniently: run folders, files of a NormMonitor, and files of results."""

from collections.abc import Sequence
from pathlib import Path

from isosphere import runs
from isosphere.errors import BadArgument
from isosphere.metrics import registry
from isosphere.recipes import labels
from isosphere.runs import Results, RunFolder


def read_sources(paths: Sequence[Path]) -> tuple[list[RunFolder], list[Results]]:
    """The runs of folders and monitors' files, and the files of results, each once. Any other path is refused."""
    paths = list({path.resolve(): path for path in paths}.values())
    if not paths:
        raise BadArgument("runs", [], "at least one run folder, file of a NormMonitor or file of results")
    names = _names([path for path in paths if path.is_dir() or runs.is_monitor(path)])
    found: list[RunFolder] = []
    for path, name in names.items():
        found += [runs.read(path, name=name)] if path.is_dir() else runs.read_monitor(path, name)
    for run in found:
        _note_missing(run)
    return found, [runs.read_results(path, strict=False) for path in paths if path not in names]


def _names(folders: list[Path]) -> dict[Path, str]:
    """The shortest ends of the paths that differ."""
    for count in range(1, max([len(folder.resolve().parts) for folder in folders], default=1) + 1):
        names = {folder: "/".join(folder.resolve().parts[-count:]) for folder in folders}
        if len(set(names.values())) == len(folders):
            break
    return {folder: labels.drawable(name) for folder, name in names.items()}


def _note_missing(run: RunFolder) -> None:
    """Note what cannot be charted."""
    trained = run.of_kind("train")
    absent = [name for name in registry.TRAINED if not any(name in line for line in trained)]
    if run.lines and len(trained) < 2:
        run.note("fewer than two training lines: no curves of them")
    elif run.lines and absent and not run.watched:
        run.note(f"no {', '.join(absent)} in its training lines (of an older version?): not charted")
    if run.lines and not run.watched and len(run.of_kind(run.on_the_way)) < 2:
        run.note("fewer than two evaluations: no curves of them")
    if not run.watched and not any(shot.angles is not None for shot in run.snapshots):
        run.note("no recorded directions: train with loop.snapshot_every to see how far embeddings turn")


def images_of(run: RunFolder) -> str:
    """What was embedded at the end: test images, held-out ones of a trial, or without labels those trained on."""
    trained = "the images trained on"
    return labels.held_out(run.values) or (trained if run.about.get("tested") == trained else "test images")

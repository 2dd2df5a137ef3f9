"""The run folder as it is written: recipe.json, run.json, metrics.jsonl, test embeddings, result.json."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from isosphere import files, runs
from isosphere.data.images import Images, ImageSet
from isosphere.data.split import below, described
from isosphere.monitor import recorded
from isosphere.recipes import options, schema
from isosphere.train import snapshots
from isosphere.train.environment import environment
from isosphere.train.evaluation import Evaluation
from isosphere.train.loggers import Logger, TensorBoard
from isosphere.train.screen import Screen
from isosphere.train.task import Task
from isosphere.train.watch import Watch

THUMBNAILS = 2**25  # bytes of test images in memory that are kept for galleries
WRITTEN = (
    runs.RESULT, runs.CHECKPOINT, runs.SPLIT, runs.EMBEDDINGS, runs.PATHS, runs.THUMBNAILS,
    snapshots.NORMS, snapshots.DIRECTIONS, "tensorboard/events.*",
)  # fmt: skip
"""What a run leaves in its folder besides what every new one writes at once; the result first, so it never lies."""


class Measured(NamedTuple):
    """Test metrics of the last checkpoint. With a watch those of the best one by validation, too."""

    last: dict[str, float]
    best: dict[str, float]
    watch: Watch | None = None


class Journal:
    """Writes a run's folder, and gives its numbers to loggers and a screen. Only the first rank's is active."""

    def __init__(
        self,
        folder: Path,
        recipe: schema.Recipe,
        loop: schema.Loop,
        device: torch.device,
        resumed_at: int | None,
        active: bool,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self.folder, self.recipe, self.loop, self.active = folder, recipe, loop, active
        self.resumed_at = resumed_at or 0
        self.screen = Screen(folder.name, loop.steps, self.resumed_at, shown=active)
        self.loggers = list(loggers) if active else []
        self._open = ExitStack()
        if not active:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if resumed_at is None:
            _clear(folder)
        self.environment = environment(device)
        write_json(folder / runs.RECIPE, options.to_dict(recipe))
        if resumed_at is None:
            seen_from = os.path.relpath(Path.cwd(), folder)  # where relative paths of the recipe begin
            write_json(folder / runs.RUN, self.environment | {"seen_from": seen_from})
        else:
            _forget_after(folder, resumed_at)
        mode = "w" if resumed_at is None else "a"
        self.lines = self._open.enter_context(open(folder / runs.METRICS, mode, encoding="utf-8"))
        if recipe.loop.tensorboard:
            self.loggers.append(self._open.enter_context(closing(TensorBoard(folder / "tensorboard", resumed_at))))

    def __enter__(self) -> "Journal":
        self._open.enter_context(self.screen)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self._open.close()
        except OSError:  # on a full disk, of a line that was refused before
            if kind is None:
                raise

    def write(self, step: int, kind: str, values: dict[str, float]) -> None:
        """Append a line of a kind ("train", "test", "turn", "untrained"); loggers get its values as "train/loss"."""
        if not self.active:
            return
        self._append({"step": step, "kind": kind, **values})
        for logger in self.loggers:
            logger(step, {f"{kind}/{name}": value for name, value in values.items()})

    def warning(self, step: int, name: str, words: str) -> None:
        """Append a warning, say it, and give it to the loggers that take text."""
        if not self.active:
            return
        self._append({"step": step, "kind": "warning", "warning": name, "text": words})
        self.screen.warning(step, words)
        for logger in self.loggers:
            if hasattr(logger, "warning"):
                logger.warning(step, name, words)

    def _append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record) + "\n"
        with files.on_disk(self.folder / runs.METRICS, len(line)):
            self.lines.write(line)
            self.lines.flush()

    def snapshot(self, step: int, indices: torch.Tensor, norms: torch.Tensor, directions: torch.Tensor) -> None:
        """Norms of a fixed subset of the training images, and the degrees that each turned since the last."""
        if not self.active:
            return
        # A run resumed from the last checkpoint turns from that one's snapshot.
        saved = max(self.resumed_at, (step - 1) // max(1, self.loop.save_every) * self.loop.save_every)
        every = self.loop.snapshot_every
        turn = snapshots.save(self.folder, step, every, saved // every * every, indices, norms, directions)
        if turn:
            self.write(step, "turn", turn)

    def embeddings(self, embeddings: torch.Tensor, evaluation: Evaluation) -> None:
        """The last test embeddings in half precision, scaled to a largest component of 1, and which images they are."""
        if not self.active:
            return
        images, scale = evaluation.images, float(embeddings.abs().max().clamp(min=1e-30))
        arrays = {
            "scale": np.array(scale),
            "classes": np.array(images.classes),
            "embeddings": (embeddings / scale).half().cpu().numpy(),
            "labels": images.labels.cpu().numpy(),
        }
        if evaluation.is_query is not None:
            arrays["is_query"] = evaluation.is_query.numpy()
        groups = getattr(evaluation, "groups", None)
        if groups is not None:
            arrays["groups"] = groups.numpy()
        snapshots.save_arrays(self.folder / runs.EMBEDDINGS, arrays)
        if images.paths is not None:
            rows = ([below(path, self.recipe.data.root)] for path in images.paths)
            runs.write_paths(self.folder / runs.PATHS, rows)
        elif isinstance(images, ImageSet) and images.pixels is not None and images.pixels.numel() <= THUMBNAILS:
            snapshots.save_arrays(self.folder / runs.THUMBNAILS, {"pixels": images.pixels.cpu().numpy()})

    def split(self, parts: Mapping[str, Images]) -> None:
        """Which classes, or files, train and test; `--data.split` takes the file."""
        if self.active and parts:
            write_json(self.folder / runs.SPLIT, described(parts, self.recipe.data.root))

    def untrained(self, found: dict[str, float]) -> None:
        """Append the metrics of the backbone's features before training, if there are any."""
        if found:
            self.write(0, "untrained", recorded(found))

    def entries(self, kind: str) -> list[runs.Line]:
        """All lines of a kind so far, also those before a resume."""
        return runs.entries(self.folder, kind) if self.active else []

    def holds(self, step: int, kind: str) -> tuple[bool, bool]:
        """Whether the snapshot of a step, and its evaluation of this kind, are there."""
        kinds = [line["kind"] for line in self.entries("") if line["step"] == step]
        turned = "turn" in kinds or step <= self.loop.snapshot_every
        return runs.snapshot_path(self.folder, step).is_file() and turned, kind in kinds

    def result(self, measured: Measured, seconds: float, task: Task, tested: str) -> dict[str, Any]:
        """Write and return result.json: what was measured, and the run.

        Without validation the best evaluation is picked on test images, so it is called an oracle.
        """
        last, best, watch = measured
        if watch is None:
            headline = task.evaluation.headline
            chosen = {"oracle": max(self.entries("test"), key=lambda entry: entry.get(headline, -math.inf))}
        else:
            lines = [{k: v for k, v in line.items() if k != "kind"} for line in self.entries("validation")]
            chosen = {
                "best": {"step": watch.step, **best},
                "validation": {
                    "metric": watch.metric,
                    "best": next(line for line in lines if line["step"] == watch.step),
                    "last": lines[-1],
                },
            }
        untrained = [{k: v for k, v in line.items() if k != "kind"} for line in self.entries("untrained")]
        result = {
            "recipe": options.to_dict(self.recipe),
            "last": last,
            **chosen,
            **({"untrained": untrained[0]} if untrained else {}),  # the backbone's features
            "tested": tested,  # what the images are to the model
            "images": task.sizes,
            "seconds": round(seconds, 2),
            "notes": list(task.notes),  # how a copy differs from the original, what is left out
            **({"counts": task.counts} if task.counts else {}),  # of one's own people, to train and to test on
            **self.environment,
        }
        write_json(self.folder / runs.RESULT, result)
        snapshots.forget_directions(self.folder)
        return result


def _clear(folder: Path) -> None:
    """Remove what an earlier run has left. A new one that is broken off would pass for finished, with its numbers."""
    for pattern in WRITTEN if (folder / runs.RECIPE).is_file() else ():
        for path in folder.glob(pattern):
            path.unlink()


def write_json(path: Path, values: Any) -> None:
    """Write a JSON file that is never half there."""
    files.write(path, json.dumps(values, indent=1) + "\n")


def _forget_after(folder: Path, step: int) -> None:
    """Drop the lines of steps that will be trained again, and a last line that a crash cut short."""
    kept = (line for line in runs.entries(folder) if line["step"] <= step)
    files.write(folder / runs.METRICS, "".join(json.dumps(line) + "\n" for line in kept))

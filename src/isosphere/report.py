"""What is told about embeddings from any tool, read from files alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from isosphere.tables import columns

if TYPE_CHECKING:
    import torch

SPREAD = 0.15
"""Coefficient of variation from which SEC could matter: in `results/table3_*.json` test norms have 0.15 to 0.52 without
a constraint, where SEC gained in every cell, and 0.07 to 0.14 with SEC."""


def inspection(embeddings_file: Path, labels_file: Path | None = None) -> Iterator[Table | str]:
    """Metrics, norms, errors by norm decile and a verdict on SEC for embeddings (N, D) and labels (N,) in files.

    Without labels, or with those of one class only, norms and the verdict alone.
    """
    from isosphere.metrics import clustering_metrics, retrieval_metrics
    from isosphere.metrics.faces import norm_and_errors
    from isosphere.metrics.neighbours import checked_embeddings, checked_labels
    from isosphere.metrics.retrieval import first_is_right
    from isosphere.sphere import norms

    embeddings = checked_embeddings(_tensor(embeddings_file))
    labels = None if labels_file is None else checked_labels(_whole(_tensor(labels_file)), len(embeddings))
    classes = 0 if labels is None else len(labels.unique())
    lengths, wrong = norms(embeddings), None
    mean = float(lengths.mean())
    spread = float(lengths.std(correction=0)) / mean if mean else 0.0
    if classes < 2:
        without = "one class only" if classes else "no labels"
        yield f"{len(embeddings)} embeddings, {without}: metrics and errors, which need labels of classes, are left out"
    else:
        found = retrieval_metrics(embeddings, labels) | clustering_metrics(embeddings, labels)
        metrics = columns([found])
        table = Table(*metrics.values(), title=f"{len(embeddings)} embeddings, {classes} classes; metrics in %")
        table.add_row(*[f"{100 * found[name]:.2f}" for name in metrics])
        yield table
        if found["singletons"]:
            yield f"{found['singletons']} queries have no other image of their class; they count as wrong"
        wrong = ~first_is_right(embeddings, labels)
    yield _deciles(lengths, wrong)
    if wrong is not None:
        auroc = norm_and_errors(lengths, wrong, groups=1)["auroc"]
        if auroc is not None:
            yield f"a low norm foretells an R@1 error with AUROC {auroc:.3f}; 0.5 is chance"
        else:
            yield f"no AUROC of norms and errors: all first neighbours are {'wrong' if wrong.any() else 'right'}"
    yield f"norms: mean {mean:.4g}, variance {(spread * mean) ** 2:.4g}, coefficient of variation {spread:.3f}"
    yield verdict(mean, spread)


def _deciles(lengths: "torch.Tensor", wrong: "torch.Tensor | None") -> Table:
    """Norms (N,) by decile and, where it is known which first neighbours are wrong (N,), the errors in each."""
    import torch

    quantiles = torch.linspace(0, 1, 11, dtype=lengths.dtype)
    edges = torch.quantile(lengths[:: max(1, len(lengths) // 1_000_000)], quantiles)
    table = Table("norm decile", "from", "to", "images", title="norms" if wrong is None else "norms and errors")
    if wrong is not None:
        table.add_column("R@1 errors, %")
    decile = torch.bucketize(lengths, edges[1:-1])
    for number in range(10):
        chosen = decile == number
        row = [str(number + 1), f"{edges[number]:.4g}", f"{edges[number + 1]:.4g}", str(int(chosen.sum()))]
        if wrong is not None:
            row.append(f"{100 * float(wrong[chosen].double().mean()):.1f}" if chosen.any() else "-")
        table.add_row(*row)
    return table


def verdict(mean: float, spread: float) -> str:
    """Whether SEC could matter for norms of this mean and coefficient of variation, in a sentence."""
    if mean == 0:
        return "all embeddings are zero: there is nothing to train on"
    if abs(mean - 1) < 1e-3 and spread < 1e-3:
        return "all norms are 1: these embeddings are normalised already; give the raw ones to see what SEC could do"
    if spread < SPREAD:
        return (
            "the norms hardly spread, no more than those of our runs with SEC: if these were trained without it, "
            "it would change little"
        )
    ratio = (1 + spread) / max(1 - spread, 1e-6)
    return (
        "the norms spread: by the paper's proxy an embedding one deviation below the mean turns "
        f"{ratio:.1f} times (Adam) or {ratio**2:.1f} times (SGD) as far as one above it: SEC could matter"
    )


def _whole(labels: "torch.Tensor") -> "torch.Tensor":
    """Labels that are whole numbers as integers, also where a tool has saved them as floats; others untouched."""
    if not labels.is_floating_point():
        return labels
    whole = labels.long()
    return whole if bool((whole.double() == labels.double()).all()) else labels


def _tensor(path: Path) -> "torch.Tensor":
    import torch

    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        told = "is not a plain .npy array of numbers or names (of Python objects: np.asarray(names, dtype=str))"
        raise ValueError(f"{path} {told}") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} is an archive, as .npz and .pt are: save one array with np.save")
    if array.dtype.kind in "US":  # class names in place of numbers
        array = np.unique(array, return_inverse=True)[1]
    try:
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error

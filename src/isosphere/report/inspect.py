"""Metrics and norms of embeddings from any tool, read from files alone."""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from isosphere import runs
from isosphere.errors import NotArrays, NotFound
from isosphere.metrics import registry

if TYPE_CHECKING:
    import torch

NAMES = {
    "embeddings": ("embeddings", "embedding", "features", "x", "arr_0"),
    "labels": ("labels", "label", "targets", "target", "y", "arr_1"),
}
"""What the arrays of a .npz may be called, in capitals, too: our own name, usual ones, np.savez's for the nameless."""


COLLAPSED = 0.99
"""Mean cosine of two embeddings from which they count as one direction: angles of 8 degrees."""


def inspection(embeddings_file: Path, labels_file: Path | None = None) -> Iterator[Table | str]:
    """Metrics, norms, errors by norm decile and a verdict on SEC for embeddings (N, D) and labels (N,) in files.

    Both may be in one .npz. Without labels, or with those of one class only, norms and the verdict alone.
    """
    from isosphere.metrics import clustering_metrics, retrieval_metrics
    from isosphere.metrics.faces import norm_and_errors
    from isosphere.metrics.neighbors import checked_embeddings, checked_labels
    from isosphere.metrics.retrieval import first_is_right
    from isosphere.sphere import is_normalized, norms

    arrays, notes = _read(embeddings_file, *NAMES) if labels_file is None else _read(embeddings_file, "embeddings")
    if labels_file is not None:
        others, more = _read(labels_file, "labels")
        arrays, notes = arrays | others, notes + more
    yield from notes  # before what may be wrong with them
    embeddings = checked_embeddings(arrays["embeddings"])
    labels = checked_labels(_whole(arrays["labels"]), len(embeddings)) if "labels" in arrays else None
    classes = 0 if labels is None else len(labels.unique())
    lengths, wrong = norms(embeddings), None
    mean = float(lengths.mean())
    spread = float(lengths.std(correction=0)) / mean if mean else 0.0
    if labels is None or classes < 2:
        without = "one class only" if classes else "no labels"
        yield f"{len(embeddings)} embeddings, {without}: metrics and errors, which need labels of classes, are left out"
    else:
        found = retrieval_metrics(embeddings, labels) | clustering_metrics(embeddings, labels)
        metrics = registry.scores(found)
        title = f"{len(embeddings)} embeddings, {classes} classes; metrics in %"
        table = Table(*[one.heading for one in metrics], title=title)
        table.add_row(*[f"{100 * found[one.key]:.2f}" for one in metrics])
        yield table
        if found["singletons"]:
            yield f"{found['singletons']} queries have no other image of their class; they count as wrong"
        if not is_normalized(mean, spread):  # whose norms are rounding
            wrong = ~first_is_right(embeddings, labels)
    yield _deciles(lengths, wrong)
    if wrong is not None:
        auroc = norm_and_errors(lengths, wrong, groups=1)["auroc"]
        if auroc is not None:
            yield f"a low norm predicts an R@1 error with AUROC {auroc:.3f}; 0.5 is chance"
        else:
            yield f"no AUROC of norms and errors: all first neighbors are {'wrong' if wrong.any() else 'right'}"
    yield f"norms: mean {mean:.4g}, variance {(spread * mean) ** 2:.4g}, coefficient of variation {spread:.3f}"
    if lost := int(((lengths == 0) & (embeddings != 0).any(1)).sum()):
        yield f"{lost} embeddings are so small that their norms are 0 and they have no direction: save them larger"
    alike = mean_cosine(embeddings)
    yield f"directions: the cosine of two embeddings is {alike:.3f} in the mean"
    yield verdict(mean, spread, alike)


def _deciles(lengths: "torch.Tensor", wrong: "torch.Tensor | None") -> Table:
    """Norms (N,) by decile and, where it is known which first neighbors are wrong (N,), the errors in each."""
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


def mean_cosine(embeddings: "torch.Tensor") -> float:
    """The mean cosine of two of the embeddings (N, D) that are not zero; 1 is one direction."""
    from isosphere import sphere

    units = sphere.directions(embeddings.double())
    count = int((units != 0).any(1).sum())
    return float((units.sum(0).square().sum() - count) / max(1, count * (count - 1)))


def verdict(mean: float, spread: float, alike: float = 0.0) -> str:
    """Whether SEC could matter for norms of this mean and coefficient of variation, in a sentence.

    `alike` is the mean cosine of two embeddings.
    """
    from isosphere import sphere

    if mean == 0:
        return "all norms are zero: there is nothing to learn from"
    if alike > COLLAPSED:
        return (
            "the embeddings have collapsed to one direction, whatever their norms: look at the loss and the learning "
            "rate before you think of norms"
        )
    if sphere.is_normalized(mean, spread):
        return "all norms are 1: these embeddings are already normalized; give the raw ones to see what SEC could do"
    if spread < sphere.SPREADING:
        return (
            "the norms hardly spread, no more than in our runs with SEC; if these were trained without it, it would "
            "change little"
        )
    ratio = (1 + spread) / max(1 - spread, 1e-6)
    return (
        "the norms spread: by the paper's proxy an embedding one standard deviation below the mean turns "
        f"{ratio:.1f} times (Adam) or {ratio**2:.1f} times (SGD) as far as one that much above it; SEC could matter, "
        "but only a comparison on held-out classes shows whether it helps"
    )


def _whole(labels: "torch.Tensor") -> "torch.Tensor":
    """Labels that are whole numbers as integers, also where a tool has saved them as floats; others untouched."""
    if not labels.is_floating_point():
        return labels
    whole = labels.long()
    return whole if bool((whole.double() == labels.double()).all()) else labels


def _read(path: Path, kind: str, *others: str) -> "tuple[dict[str, torch.Tensor], list[str]]":
    """Tensors by kind, and which arrays these are. A .npy is of the kind; a .npz may hold the others, too."""
    if not path.is_file():
        raise NotFound(path, "file")
    held = _plain(path, kind, lambda: np.load(path, allow_pickle=False))
    if isinstance(held, np.ndarray):
        return {kind: _tensor(path, kind, held)}, []
    with held:
        if not all(name.endswith(".npy") for name in held.zip.namelist()):
            raise NotArrays(path, kind, "it is an archive of something else, as .pt is")
        called = {one: _called(path, held.files, one, needed=one == kind) for one in (kind, *others)}
        names = {one: name for one, name in called.items() if name is not None}
        arrays = {one: _plain(path, name, partial(held.__getitem__, name)) for one, name in names.items()}
        left = [name for name in held.files if name not in names.values()]
        if kind == "embeddings" and {kind, "labels", "scale"} <= {*held.files} and arrays[kind].dtype == np.float16:
            arrays[kind] = _plain(path, "scale", lambda: runs.unscaled(held))  # a run's own file
            names[kind] += " x scale"
            left.remove("scale")
    taken = ", ".join(one if name == one else f"{one} ({name})" for one, name in names.items())
    note = f"{path} holds {taken}" + (f"; not used: {_listed(left)}" if left else "")
    return {one: _tensor(path, names[one], array) for one, array in arrays.items()}, [escape(note)]


def _called(path: Path, names: list[str], kind: str, needed: bool) -> str | None:
    """Which of an archive's arrays is of this kind: by its name, or the only one where one is needed."""
    found = [kind] if kind in names else [name for name in names if name.lower() in NAMES[kind]]
    if not found and needed and len(names) == 1:
        return names[0]
    if len(found) > 1 or (needed and not found):
        raise NotArrays(path, kind, f"it holds {_listed(names) or 'nothing'}; call one of them {kind}")
    return found[0] if found else None


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _plain(path: Path, kind: str, load: Callable[[], Any]) -> Any:
    """What is loaded; refused where it is damaged or of Python objects."""
    try:
        return load()
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise NotArrays(path, kind, "of numbers, or of names as np.asarray(names, dtype=str)") from error


def _tensor(path: Path, kind: str, array: np.ndarray) -> "torch.Tensor":
    import torch

    if array.dtype.kind in "US":  # class names in place of numbers
        array = np.unique(array, return_inverse=True)[1]
    try:
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except TypeError as error:
        raise NotArrays(path, kind, str(error)) from error

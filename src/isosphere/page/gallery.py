"""The retrieval gallery: which queries, their nearest images in every run, and thumbnails within a budget."""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from isosphere.figures.runs import ANY_NAME, locate
from isosphere.page.markup import listed, note, section, table, text
from isosphere.page.sources import UNREADABLE, Embedded, Run
from isosphere.sphere import directions, products

NEIGHBORS = 5
SAMPLE, WORST = 120, 80  # queries at most
CANDIDATES = 4096  # queries among which the worst errors are looked for
PIXELS = 80  # longer side of a thumbnail
BUDGET = 1_500_000  # bytes of all thumbnails, before base64 makes them a third larger
Members = list[Run]  # of one test set


class Nearest(NamedTuple):
    """Neighbors' indices and cosines (Q, K), the nearest wrong image's lead over the nearest right (Q,), and which
    queries (Q,) have no right image at all."""

    indices: np.ndarray
    cosines: np.ndarray
    lead: np.ndarray
    alone: np.ndarray


class Pictures(NamedTuple):
    """How to get the thumbnail of a test image, and the class that its path tells, if any."""

    thumbnail: Callable[[int], bytes]
    class_of: Callable[[int], str]


def gallery_section(runs: Sequence[Run]) -> tuple[str, list[dict[str, Any]]]:
    """A gallery for every group of runs that share a test set, and what the page's script shows in each."""
    groups: dict[bytes, Members] = {}
    for run in runs:
        if run.embedded is not None:
            test_set = run.embedded.labels.tobytes() + run.embedded.is_query.tobytes()
            groups.setdefault(test_set, []).append(run)
    parts, shown = [], []
    for members in groups.values():
        content, sentences = _gallery(members, BUDGET // len(groups))
        if len(groups) > 1:
            parts.append(f"<h3>{text(', '.join(run.name for run in members))}</h3>")
        parts.append(listed(sentences))
        if content:
            parts.append(f'<div class="gallery" data-group="{len(shown)}"></div>{_without_script(content)}')
            shown.append(content)
    if not groups and not all(run.watched for run in runs):
        parts.append(note("No run has test embeddings, so there is nothing to retrieve."))
    return section("gallery", "Retrievals", *parts), shown


def _gallery(members: Members, budget: int) -> tuple[dict[str, Any], list[str]]:
    """What is shown for one test set, and sentences that say what it is, or why there is nothing."""
    pictures, reason = _pictures(members)
    if pictures is None:
        return {}, [f"There is no gallery: {reason}."]
    embedded = members[0].embedded
    queries = np.flatnonzero(embedded.is_query)
    candidates = queries[_spread(len(queries), CANDIDATES)]
    found = [nearest(run.embedded, candidates) for run in members]
    sample, worst = chosen(np.max([one.lead for one in found], axis=0))
    images: dict[int, str] = {}
    kept, unread, spent = [], 0, 0
    for row in _interleaved(sample, worst):
        needed = {int(candidates[row])} | {int(i) for one in found for i in one.indices[row]}
        try:
            fresh = {i: pictures.thumbnail(i) for i in needed if i not in images}
        except OSError:
            unread += 1
            continue
        size = sum(map(len, fresh.values()))
        if spent + size > budget:
            break
        spent += size
        images |= {i: base64.b64encode(image).decode() for i, image in fresh.items()}
        kept.append(row)
    if not kept:
        told = "the images cannot be read at the paths in test_paths.txt, seen from the recipe's data.root"
        return {}, [f"There is no gallery: {told}."]
    rows = [row for row in sample if row in kept] + [row for row in worst if row in kept and row not in sample]
    content = {
        "runs": [{"name": run.name, "style": run.style % 8} for run in members],
        "names": {int(embedded.labels[i]): _class_name(embedded, pictures, i) for i in images},
        "labels": {i: int(embedded.labels[i]) for i in images},
        "images": images,
        "labeled": len(np.unique(embedded.labels)) > 1,
        "queries": [
            {"image": int(candidates[row]), "sample": row in sample, "worst": worst.index(row) if row in worst else -1,
             "alone": bool(found[0].alone[row]), "hits": [_hits(one, row) for one in found]} for row in rows
        ],
    }  # fmt: skip
    return content, _said(len(queries), len(candidates), content, unread)


def _said(total: int, looked_at: int, content: dict[str, Any], unread: int) -> list[str]:
    shown = content["queries"]
    sampled, worst = sum(query["sample"] for query in shown), sum(query["worst"] >= 0 for query in shown)
    errors = (
        f", and the {worst} worst errors of {looked_at} looked at (where in any run the nearest wrong image leads the "
        "nearest right by most)."
    )
    said = [
        f"{len(shown)} of {total} queries, chosen without chance: {sampled} evenly spread"
        + (errors if content["labeled"] else ". The images have no labels: none is right or wrong."),
        f"Each has its {NEIGHBORS} nearest images by cosine, itself left out. No more, to keep the page small.",
    ]
    alone = sum(query["alone"] for query in shown)
    said += [f"{alone} of them have no other image of their class: none can be right or wrong."] if alone else []
    return said + ([f"{unread} queries are left out because images cannot be read."] if unread else [])


# ---------------------------------------------------------------- queries and neighbors


def nearest(embedded: Embedded, candidates: np.ndarray, count: int = NEIGHBORS) -> Nearest:
    """The nearest images of some queries (Q,) of a test set, by cosine, in blocks of rows."""
    unit, labels = directions(torch.from_numpy(embedded.embeddings)), torch.from_numpy(embedded.labels)
    asked = torch.from_numpy(embedded.is_query)
    indices, cosines, leads, alone = [], [], [], []
    for rows in torch.from_numpy(candidates).split(256):
        scores = products(unit[rows], unit)  # (B, N)
        scores[torch.arange(len(rows)), rows] = -torch.inf
        if not asked.all():  # queries have a gallery of their own
            scores[:, asked] = -torch.inf
        same = labels[rows, None] == labels
        right, wrong = (scores.masked_fill(~mask, -torch.inf).amax(1) for mask in (same, ~same))
        # Without any right image an error is not the model's; without any wrong one there is none.
        leads.append(torch.where(right.isfinite() & wrong.isfinite(), wrong - right, -torch.inf))
        alone.append(~right.isfinite())
        values, places = scores.topk(min(count, len(labels) - 1), 1)
        indices.append(places)
        cosines.append(values)
    return Nearest(*(torch.cat(parts).numpy() for parts in (indices, cosines, leads, alone)))


def chosen(lead: np.ndarray) -> tuple[list[int], list[int]]:
    """Rows of the candidates to show: an even spread, and the worst errors, worst first."""
    worst = [int(row) for row in np.argsort(-lead, kind="stable")[:WORST] if lead[row] >= 0]
    return [int(row) for row in _spread(len(lead), SAMPLE)], worst


def _spread(size: int, count: int) -> np.ndarray:
    return np.unique(np.linspace(0, size - 1, min(size, count)).round().astype(int))


def _interleaved(left: list[int], right: list[int]) -> Iterator[int]:
    pairs = chain.from_iterable(zip_longest(left, right))
    return iter(dict.fromkeys(row for row in pairs if row is not None))


def _hits(found: Nearest, row: int) -> list[list[float]]:
    pairs = zip(found.indices[row].tolist(), found.cosines[row].tolist(), strict=True)
    return [[index, round(cosine, 4)] for index, cosine in pairs if cosine > -np.inf]


# ---------------------------------------------------------------- pictures


def _pictures(runs: Sequence[Run]) -> tuple[Pictures | None, str]:
    """From the first run that has them: packed thumbnails, else the images at the paths; or None and why."""
    reasons = []
    for run in runs:
        for file, reader in (("test_thumbnails.npz", _packed), ("test_paths.txt", _paths)):
            if (run.folder / file).is_file():
                try:
                    return reader(run.folder / file, run), ""
                except UNREADABLE as error:
                    reasons.append(f"{run.name}'s {file} cannot be used: {error}")
    return None, "; ".join(reasons) or "no run has test_thumbnails.npz or test_paths.txt, so no image can be shown"


def _packed(path: Path, run: Run) -> Pictures:
    with np.load(path, allow_pickle=False) as arrays:
        pixels = arrays["pixels"]  # (N, 3 or 1, S, S)
    count = len(run.embedded.labels)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:2] not in ((count, 1), (count, 3)):
        raise ValueError(f"pixels must be uint8 of shape ({count}, 3, S, S), not {pixels.dtype} {pixels.shape}")

    def thumbnail(index: int) -> bytes:
        colors = np.repeat(pixels[index], 3 // pixels.shape[1], axis=0)  # gray ones have one channel
        return encoded(Image.fromarray(np.ascontiguousarray(colors.transpose(1, 2, 0))))

    return Pictures(thumbnail, lambda index: "")


def _paths(path: Path, run: Run) -> Pictures:
    """Lines of a path, which `locate` finds, and after a tab the class, else its folder is it."""
    lines = [line.split("\t") for line in path.read_text(**ANY_NAME).splitlines()]
    if len(lines) != len(run.embedded.labels):
        raise ValueError(f"it has {len(lines)} lines for {len(run.embedded.labels)} embeddings")
    data = run.recipe.get("data")
    root = str(data.get("root") or "") if isinstance(data, dict) else ""

    def thumbnail(index: int) -> bytes:
        with Image.open(locate(lines[index][0], root, run.folder)) as image:
            image.draft("RGB", (2 * PIXELS, 2 * PIXELS))
            return encoded(image.convert("RGB"))

    def class_of(index: int) -> str:
        return lines[index][1] if len(lines[index]) > 1 else Path(lines[index][0]).parent.name

    return Pictures(thumbnail, class_of)


def encoded(image: Image.Image) -> bytes:
    """A small WebP of an RGB image."""
    image.thumbnail((PIXELS, PIXELS))
    file = io.BytesIO()
    image.save(file, "WEBP", quality=60, method=4)
    return file.getvalue()


def _class_name(embedded: Embedded, pictures: Pictures, index: int) -> str:
    label = int(embedded.labels[index])
    kept = embedded.classes[label] if 0 <= label < len(embedded.classes) else ""
    return kept or pictures.class_of(index) or f"class {label}"


def _without_script(content: dict[str, Any]) -> str:
    """The nearest image of every query as a table, where scripts are off."""
    names, labels, rows = content["names"], content["labels"], []
    for query in content["queries"]:
        row = [query["image"], names[labels[query["image"]]]]
        for hits in query["hits"]:
            for index, cosine in hits[:1] or [(None, "-")]:
                right = "right" if labels.get(index) == labels[query["image"]] else "wrong"
                right = "no other image of its class" if query["alone"] else right
                right = right if content["labeled"] else "no labels"
                row += [f"{names[labels[index]]} ({right})" if hits else "-", cosine]
        rows.append(row)
    head = ["query", "class"] + [title for run in content["runs"] for title in (f"nearest in {run['name']}", "cosine")]
    return f"<noscript>{table('the nearest image of every query', head, rows, words=len(head))}</noscript>"

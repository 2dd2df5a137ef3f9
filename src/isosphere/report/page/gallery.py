"""The retrieval gallery: some queries with their nearest images in every run, as thumbnails within a budget."""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from PIL import Image

from isosphere.errors import IsosphereError
from isosphere.report.page.markup import listed, note, section, table, text
from isosphere.report.records import embedded
from isosphere.report.retrievals import Nearest, findable, nearest, spread, worst_errors
from isosphere.report.svg import ink
from isosphere.runs import RunFolder, TestImages, read_test_images

NEIGHBORS = 5
SAMPLE, WORST = 120, 80  # queries at most
CANDIDATES = 4096  # queries among which the worst errors are looked for
PIXELS = 80  # longer side of a thumbnail
BUDGET = 1_500_000  # bytes of all thumbnails, before base64 makes them a third larger
Styles = Mapping[str, tuple[str, str]]


def gallery_section(runs: Sequence[RunFolder], styles: Styles) -> tuple[str, list[dict[str, Any]]]:
    """A gallery for every group of runs that share a test set, and what the page's script shows in each."""
    groups: dict[bytes, list[RunFolder]] = {}
    for run in runs:
        if run.embedded is not None:
            test_set = run.embedded.labels.tobytes() + run.embedded.is_query.tobytes()
            groups.setdefault(test_set, []).append(run)
    parts: list[str] = []
    shown: list[dict[str, Any]] = []
    for members in groups.values():
        content, sentences = _gallery(members, styles, BUDGET // len(groups))
        if len(groups) > 1:
            parts.append(f"<h3>{text(', '.join(run.name for run in members))}</h3>")
        parts.append(listed(sentences))
        if content:
            parts.append(f'<div class="gallery" data-group="{len(shown)}"></div>{_without_script(content)}')
            shown.append(content)
    if not groups and not all(run.watched for run in runs):
        parts.append(note("No run has test embeddings, so there is nothing to retrieve."))
    return section("gallery", "Retrievals", *parts), shown


def _gallery(members: Sequence[RunFolder], styles: Styles, budget: int) -> tuple[dict[str, Any], list[str]]:
    """What is shown for one test set, and sentences on what it is, or why there is nothing."""
    pictures, reason = _pictures(members)
    if pictures is None:
        return {}, [f"There is no gallery: {reason}."]
    held = embedded(members[0])
    queries = np.flatnonzero(held.is_query)
    candidates = queries[spread(len(queries), CANDIDATES)]
    found = [nearest(embedded(run), candidates, min(NEIGHBORS, findable(held))) for run in members]
    sample = spread(len(candidates), SAMPLE)
    worst = worst_errors(np.max([one.lead for one in found], axis=0), WORST)
    images: dict[int, str] = {}
    kept, unread, spent = [], 0, 0
    for row in _interleaved(sample, worst):
        needed = {int(candidates[row])} | {int(i) for one in found for i in one.indices[row]}
        try:
            fresh = {i: encoded(pictures.image(i, PIXELS)) for i in needed if i not in images}
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
        return {}, ["There is no gallery: the images cannot be read at their paths, seen from the recipe's data.root."]
    rows = [row for row in sample if row in kept] + [row for row in worst if row in kept and row not in sample]
    content = {
        "runs": [{"name": run.name, "color": ink(styles[run.name][0])} for run in members],
        "names": {int(held.labels[i]): _class_name(members[0], pictures, i) for i in images},
        "labels": {i: int(held.labels[i]) for i in images},
        "images": images,
        "labeled": len(np.unique(held.labels)) > 1,
        "queries": [
            {"image": int(candidates[row]), "sample": row in sample, "worst": worst.index(row) if row in worst else -1,
             "alone": bool(found[0].alone[row]), "hits": [_hits(one, row) for one in found]} for row in rows
        ],
    }  # fmt: skip
    return content, _about(len(queries), len(candidates), content, unread)


def _about(total: int, candidates: int, content: dict[str, Any], unread: int) -> list[str]:
    shown = content["queries"]
    sampled, worst = sum(query["sample"] for query in shown), sum(query["worst"] >= 0 for query in shown)
    errors = (
        f", and the {worst} worst errors of {candidates} (where in any run the nearest wrong image leads the nearest "
        "right by most)."
    )
    said = [
        f"{len(shown)} of {total} queries, chosen without chance: {sampled} evenly spread"
        + (errors if content["labeled"] else ". The images have no labels: none is right or wrong."),
        f"Each has its {NEIGHBORS} nearest images by cosine, itself left out. No more, to keep the page small.",
    ]
    alone = sum(query["alone"] for query in shown)
    said += [f"{alone} of them have no other image of their class: none can be right or wrong."] if alone else []
    return said + ([f"{unread} queries are left out because images cannot be read."] if unread else [])


def _interleaved(left: list[int], right: list[int]) -> Iterator[int]:
    pairs = chain.from_iterable(zip_longest(left, right))
    return iter(dict.fromkeys(row for row in pairs if row is not None))


def _hits(found: Nearest, row: int) -> list[list[float]]:
    pairs = zip(found.indices[row].tolist(), found.cosines[row].tolist(), strict=True)
    return [[index, round(cosine, 4)] for index, cosine in pairs]


def _pictures(runs: Sequence[RunFolder]) -> tuple[TestImages | None, str]:
    """From the first run that has them, or None and why."""
    reasons = []
    for run in runs:
        try:
            if (found := read_test_images(run)) is not None:
                return found, ""
        except IsosphereError as error:
            reasons.append(str(error))
    return None, "; ".join(reasons) or "no run has kept its test images or their paths"


def encoded(image: Image.Image) -> bytes:
    """A small WebP of an RGB image."""
    file = io.BytesIO()
    image.save(file, "WEBP", quality=60, method=4)
    return file.getvalue()


def _class_name(run: RunFolder, pictures: TestImages, index: int) -> str:
    held = embedded(run)
    label, names = int(held.labels[index]), held.classes
    return (names[label] if 0 <= label < len(names) else "") or pictures.class_of(index) or f"class {label}"


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

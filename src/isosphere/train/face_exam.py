"""People to train on and the exam of faces, as a recipe names them: opened, counted, and framed."""

from dataclasses import replace
from pathlib import Path

import torch

from isosphere.data import alignment, faces
from isosphere.data.images import ImageSet, existing, lines, open_images
from isosphere.recipes import schema
from isosphere.train import exams, overlap
from isosphere.train.frames import Source, framed, parse_place, square


def build_face_exam(data: schema.Faces, device: torch.device) -> exams.Faces:
    """The exam alone, for which nobody of the people who are trained on, of whom there may be many, is opened."""
    return face_exam(data, device, *open_exam(data))[0]


def face_counts(data: schema.Faces) -> dict[str, int]:
    """How many photographs and people a run would find to train on, and of what in its exam; frames nobody."""
    return count(open_people(data), *open_exam(data))


def count(people: ImageSet, pairs: list[faces.Pairs], probes: list[Source], others: list[Source]) -> dict[str, int]:
    """Of people and an exam that were opened."""
    probed, among = (sum(len(source.images) for source in sources) for sources in (probes, others))
    trained = {"images": len(people), "people": len(people.classes)}
    return trained | {"pairs": sum(map(len, pairs)), "probes": probed, "distractors": among}


def open_people(data: schema.Faces) -> ImageSet:
    """Who is trained on, not framed yet."""
    if not data.root:
        raise ValueError("data.root is empty: name a folder of people's folders, or a .rec beside its .idx")
    exclude = [name for _, name in lines(data.exclude)] if data.exclude else []
    people = faces.identities(existing(data.root), exclude, data.min_images)
    if len(people.classes) < 2:
        raise ValueError(f"{data.root} leaves one person to train on, {people.classes[0]}: two or more are needed")
    return people


def open_exam(data: schema.Faces) -> tuple[list[faces.Pairs], list[Source], list[Source]]:
    """Pairs, probes (one set or none) and the sets of distractors, not framed yet."""
    if not data.pairs_root:
        kinds = "lfw/, cfp/ or lfw.bin, or a list of your own, mine_pair.txt"
        raise ValueError(f"data.pairs_root is empty: name the folder of the verification sets ({kinds})")
    if not data.pairs:
        raise ValueError(f"data.pairs is empty: name at least one of {', '.join(faces.SETS)}")
    if bool(data.probes) != bool(data.distractors):
        raise ValueError("data.probes and data.distractors go together: who is to be identified, and among whom")
    existing(data.pairs_root)
    pairs = [_folded(_pairs(place, data)) for place in data.pairs]
    probes = [_source(data.probes, "probes")] if data.probes else []
    others = [_source(place, "distractors") for place in data.distractors]
    if probes:
        _refuse_singles(probes[0].images, data.probes)
        overlap.refuse_asked(probes[0].images, [source.images for source in others])
    return pairs, probes, others


def face_exam(
    data: schema.Faces, device: torch.device, pairs: list[faces.Pairs], probes: list[Source], others: list[Source]
) -> tuple[exams.Faces, list[str]]:
    """The exam, which needs none of the people that are trained on, and how its sets differ from the original."""
    sets: dict[tuple, ImageSet] = {}
    for number, found in enumerate(pairs):
        key = (found.view, *(found.images.paths or (found.name,)))
        if key not in sets:  # CFP's two protocols are of the same images
            sets[key] = framed(Source(found.images, found.home, found.view), data.align, device)
        pairs[number] = replace(found, images=sets[key])
    faced = [framed(source, data.align, device, data.skip_unreadable) for source in (*probes, *others)]
    asked, among = (faced[0], faced[1:]) if faced else (None, [])
    if asked is not None and data.skip_unreadable:
        _refuse_singles(asked, data.probes)
    told = [one.note for one in (*pairs, *sets.values(), asked, *among) if one is not None]
    return exams.Faces(tuple(pairs), asked, dict(zip(_names(others), among, strict=True))), told


def _names(sources: list[Source]) -> list[str]:
    """What sets are called in the metrics: as their file or folder, numbered where that does not tell them apart."""
    short = [source.home.stem for source in sources]
    apart = len(set(short)) == len(short) and not any(name.isdigit() for name in short)
    return short if apart else [f"{name}-{number}" for number, name in enumerate(short, 1)]


def _refuse_singles(probes: ImageSet, place: str) -> None:
    if int(torch.bincount(probes.labels).max()) < 2:
        raise ValueError(f"{place} has no person with two photographs that can be read: none can be identified")


def _pairs(place: str, data: schema.Faces) -> faces.Pairs:
    """The pairs `name` or `name:share`; photographs of one's own are cut as those trained on if there is no share."""
    name, view = parse_place(place, "pairs")
    found = faces.verification(name, data.pairs_root, data.allow_missing)
    if found.images.paths is None:
        if view is not None:
            raise ValueError(f"data.pairs {place}: {name} is a pack, whose faces are cut already; leave out the share")
        return found
    return replace(found, view=view or (found.view if name in faces.SETS else square(data.fraction)))


def _folded(pairs: faces.Pairs) -> faces.Pairs:
    """A fold's threshold comes from the others, so one (LFW's view 1) becomes ten: each kind in tenths, in order."""
    if len(pairs.fold.unique()) > 1:
        return pairs
    fold = torch.empty_like(pairs.fold)
    for kind in (pairs.same, ~pairs.same):
        fold[kind] = torch.arange(int(kind.sum())) * 10 // max(1, int(kind.sum()))
    return replace(pairs, fold=fold)


def _source(place: str, field: str) -> Source:
    """Probes or distractors, whole without a share; these may also lie in one folder, as nobody asks who they are."""
    path, view = parse_place(place, field)
    return Source(open_images(path, flat=field == "distractors"), Path(path), view or alignment.WHOLE)

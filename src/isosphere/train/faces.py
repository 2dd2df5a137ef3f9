"""Faces: people to train on, pairs of photographs to verify, probes to identify among distractors."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from isosphere.data import alignment, faces
from isosphere.data.cache import CachedSet
from isosphere.data.frames import Source, framed, square
from isosphere.data.images import Images, ImageSet, existing, open_images
from isosphere.data.pairs import SETS, Pairs, read_pairs
from isosphere.data.recordio import RecordSet
from isosphere.data.text_lists import lines
from isosphere.errors import BadArgument, OneKindOfPairs, Option, SinglePhotographs, TooFewClasses
from isosphere.inference import ImageEmbedder, parse_place, progress_bar
from isosphere.metrics.distractors import distractors_ahead
from isosphere.metrics.faces import (
    FEWEST_FALSE_ACCEPTS,
    auc,
    norm_and_errors,
    pair_cosines,
    tar_at_far,
    verification,
    wrong_pairs,
)
from isosphere.metrics.registry import VERIFIED, leading
from isosphere.recipes import compatible, schema
from isosphere.sphere import norms
from isosphere.train import overlap
from isosphere.train.evaluation import Embedded
from isosphere.train.retrieval import MirroredRetrieval
from isosphere.train.task import Task, noted

FARS = (0.01, 0.001)  # false accept rates at which true accepts are measured, where there are impostors enough


@dataclass(frozen=True)
class Faces:
    """Verification of each set of pairs. At the end also identification, and how well norms predict errors.

    `accuracy` is the mean over the sets. Embeddings are averaged over a face and its mirror image. Probes are found
    among so many of all distractors, `rank1@1000`. Of several sets each has its own, `rank1@singles`.
    """

    pairs: tuple[Pairs, ...]
    probes: Images | None = None
    distractors: dict[str, Images] = field(default_factory=dict)  # by the name of their set
    headline: ClassVar[str] = leading("faces", training=True)
    choosing: ClassVar[str] = leading("faces", training=True)
    view: ClassVar[None] = None  # faces are in their frames already
    is_query: ClassVar[None] = None
    classes: ClassVar[None] = None

    def __post_init__(self) -> None:
        for pairs in self.pairs:
            if pairs.same.all() or not pairs.same.any():
                raise OneKindOfPairs(pairs.name, len(pairs), "one person" if pairs.same.all() else "two people")

    @property
    def sets(self) -> list[Images]:
        """Those with the people who are verified and identified, and among whom; CFP's two protocols share theirs."""
        probes = [] if self.probes is None else [self.probes]
        every = [*(pairs.images for pairs in self.pairs), *probes, *self.distractors.values()]
        return [*{id(images): images for images in every}.values()]

    @property
    def images(self) -> Images:
        """The first set's."""
        return self.pairs[0].images

    def of(self, train: Images, held: Images | None = None) -> "Faces | MirroredRetrieval":
        """Faces of people who are held out search for each other, as no pairs of them are given."""
        return self if held is None else MirroredRetrieval(held, None)

    def embed(self, embedder: ImageEmbedder, final: bool) -> Embedded:
        sets = {id(pairs.images): pairs.images for pairs in self.pairs}
        rows = {key: embedder.mirrored(images, None) for key, images in sets.items()}
        embedded = {pairs.name: rows[id(pairs.images)] for pairs in self.pairs}
        if final and self.probes is not None:
            embedded["probes"] = embedder.mirrored(self.probes, None)
            others = self.distractors.items()
            embedded |= {f"among {name}": embedder.mirrored(images, None) for name, images in others}
        return embedded | {"embeddings": next(iter(embedded.values()))}

    def measure(self, embedded: Embedded, final: bool, seed: int) -> dict[str, float]:
        found = {}
        for pairs in self.pairs:
            embeddings = embedded[pairs.name]
            left, right = embeddings[pairs.left.to(embeddings.device)], embeddings[pairs.right.to(embeddings.device)]
            verified = verification(left, right, pairs.same, pairs.fold)
            found[pairs.name] = verified[VERIFIED]
            if final:
                found[f"{pairs.name}_std"] = verified["std"]
                cosines = pair_cosines(left, right)
                wrong, _ = wrong_pairs(cosines, pairs.same, pairs.fold)
                lower = torch.minimum(norms(left), norms(right))
                found[f"{pairs.name}_auc"] = auc(cosines, pairs.same)
                fars = [far for far in FARS if far * int((~pairs.same).sum()) >= FEWEST_FALSE_ACCEPTS]
                accepted = tar_at_far(cosines, pairs.same, fars) if fars else {}
                found |= {f"{pairs.name}_tar@{far:g}": share for far, share in accepted.items()}
                found |= _norm_errors(pairs.name, lower, wrong)
        found = {self.headline: sum(found[pairs.name] for pairs in self.pairs) / len(self.pairs)} | found
        if self.probes is None or "probes" not in embedded:
            return found
        return found | self._identified(self.probes.labels, embedded, seed)

    def _identified(self, truth: Tensor, embedded: Embedded, seed: int) -> dict[str, float]:
        probes, labels = embedded["probes"], truth.to(embedded["probes"].device)
        sets = {name: embedded[f"among {name}"] for name in self.distractors}
        everyone = torch.cat(list(sets.values()))
        counts = [10**power for power in range(3, 7) if 10**power <= len(everyone)]
        if not counts or len(everyone) >= 2 * counts[-1]:  # else they would say the same
            counts.append(len(everyone))
        with progress_bar("identifying", counts[-1]) as show:
            rows, _, ahead = distractors_ahead(probes, labels, everyone, counts, 1, seed=seed, progress=show)
        found = {f"rank1@{count}": _none(ahead[count]) for count in counts}
        if len(sets) > 1:
            for name, its in sets.items():
                found[f"rank1@{name}"] = _none(distractors_ahead(probes, labels, its, [len(its)])[2][len(its)])
        return found | _norm_errors("rank1", norms(probes)[rows], ahead[counts[-1]] > 0)

    def untrained(self, embedder: ImageEmbedder) -> dict[str, float]:
        return {}  # faces are judged by embeddings alone

    def relation(self, classes: Sequence[str], images: int | None, kind: str, compared: bool) -> str:
        trained, people = overlap.named(classes), [overlap.named(images.classes) for images in self.sets]
        known = {name for names in people for name in names}
        met = known & trained.keys()
        if met:
            return f"{kind} images; {len(met)} of {len(known)} people have the name of one trained on"
        # A .rec has numbers for people, a pack has neither names nor files; of numbers in a folder the files decide.
        separate = compared and all(images.paths is not None for images in self.sets)
        if not trained or not (separate or all(people)):
            return f"{kind} images; whether their people were trained on is not known"
        return f"{kind} images, not trained on"


def _none(ahead: Tensor) -> float:
    """The share of pairs with no distractor ahead."""
    return float((ahead == 0).double().mean())


def _norm_errors(name: str, lengths: Tensor, wrong: Tensor) -> dict[str, float]:
    """How well a low norm predicts an error; nothing where there is none to predict."""
    auroc = norm_and_errors(lengths, wrong, groups=1)["auroc"]
    return {} if auroc is None else {f"{name}_norm_auroc": auroc}


# ---------------------------------------------------------------- from the recipe


def faces_task(data: schema.Faces, device: torch.device) -> Task:
    """Everything is opened before the first face is framed, so that what is missing is reported at once."""
    people, opened = open_people(data), open_tests(data)
    counts = count(people, *opened)
    evaluation, notes = build_evaluation(data, device, *opened)
    overlap.refuse_trained(people, evaluation.sets)
    source = Source(people, Path(data.root), square(data.fraction), data.min_images, people=2)
    train = framed(source, data.align, device, data.skip_unreadable, data.cache)
    return Task(train, faces.FlipView(), evaluation, noted(train.note, *notes), counts=counts)


def faces_evaluation(data: schema.Faces, device: torch.device) -> Faces:
    """The evaluation alone. None of the people trained on, who may be many, is opened."""
    return build_evaluation(data, device, *open_tests(data))[0]


def face_counts(data: schema.Faces) -> dict[str, int]:
    """How many photographs and people a run would find to train on, and to test on; frames nobody."""
    return count(open_people(data), *open_tests(data))


def count(people: Images, pairs: list[Pairs], probes: list[Source], others: list[Source]) -> dict[str, int]:
    """Of people and test sets that were opened."""
    probed, among = (sum(len(source.images) for source in sources) for sources in (probes, others))
    trained = {"images": len(people), "people": len(people.classes)}
    return trained | {"pairs": sum(map(len, pairs)), "probes": probed, "distractors": among}


def open_people(data: schema.Faces) -> ImageSet | RecordSet:
    """Who is trained on, not framed yet."""
    if not data.root:
        raise BadArgument(Option("data.root"), "", "a folder of people's folders, or a .rec next to its .idx")
    exclude = [name for _, name in lines(data.exclude)] if data.exclude else []
    people = faces.identities(existing(data.root), exclude, data.min_images)
    if len(people.classes) < 2:
        raise TooFewClasses(data.root, "train", len(people.classes), 2)
    return people


def open_tests(data: schema.Faces) -> tuple[list[Pairs], list[Source], list[Source]]:
    """Pairs, probes (one set or none) and the sets of distractors, not framed yet."""
    if not data.pairs_root:
        kinds = "lfw/, cfp/, lfw.bin, or a list of your own, mine_pair.txt"
        raise BadArgument(Option("data.pairs_root"), "", f"the folder of the verification sets ({kinds})")
    if not data.pairs:
        raise BadArgument(Option("data.pairs"), (), f"one or more of {', '.join(SETS)}")
    compatible.check_data(data)
    existing(data.pairs_root)
    pairs = [_folded(_pairs(place, data)) for place in data.pairs]
    probes = [_source(data.probes, "probes")] if data.probes else []
    others = [_source(place, "distractors") for place in data.distractors]
    if probes:
        _refuse_singles(probes[0].images, data.probes)
        overlap.refuse_probes(probes[0].images, [source.images for source in others])
    return pairs, probes, others


def build_evaluation(
    data: schema.Faces, device: torch.device, pairs: list[Pairs], probes: list[Source], others: list[Source]
) -> tuple[Faces, list[str]]:
    """The evaluation, and how its sets differ from the original."""
    sets: dict[tuple, ImageSet | CachedSet] = {}
    for number, found in enumerate(pairs):
        key = (found.view, *(found.images.paths or (found.name,)))
        assert isinstance(found.images, ImageSet), "pairs are not in their frames yet"
        if key not in sets:  # CFP's two protocols are of the same images
            sets[key] = framed(Source(found.images, found.home, found.view), data.align, device, cache=data.cache)
        pairs[number] = replace(found, images=sets[key])
    faced = [framed(one, data.align, device, data.skip_unreadable, data.cache) for one in (*probes, *others)]
    asked, among = (faced[0], faced[1:]) if faced else (None, [])
    if asked is not None and data.skip_unreadable:
        _refuse_singles(asked, data.probes)
    notes = [one.note for one in (*pairs, *sets.values(), asked, *among) if one is not None]
    return Faces(tuple(pairs), asked, dict(zip(_names(others), among, strict=True))), notes


def _names(sources: list[Source]) -> list[str]:
    """What sets are called in the metrics: as their file or folder, numbered where two are alike."""
    short = [source.home.stem for source in sources]
    apart = len(set(short)) == len(short) and not any(name.isdigit() for name in short)
    return short if apart else [f"{name}-{number}" for number, name in enumerate(short, 1)]


def _refuse_singles(probes: Images, place: str) -> None:
    if int(torch.bincount(probes.labels).max()) < 2:
        raise SinglePhotographs(place)


def _pairs(place: str, data: schema.Faces) -> Pairs:
    """The pairs `name` or `name:share`. Without a share, photographs of one's own are cut as those trained on."""
    name, view = parse_place(place, "pairs")
    found = read_pairs(name, data.pairs_root, data.allow_missing)
    if found.images.paths is None:
        if view is not None:
            raise BadArgument(Option("data.pairs"), place, f"{name} without a share: a pack's faces are cut already")
        return found
    return replace(found, view=view or (found.view if name in SETS else square(data.fraction)))


def _folded(pairs: Pairs) -> Pairs:
    """A fold's threshold comes from the others, so one (LFW's view 1) becomes ten: each kind in tenths, in order."""
    if len(pairs.fold.unique()) > 1:
        return pairs
    fold = torch.empty_like(pairs.fold)
    for kind in (pairs.same, ~pairs.same):
        fold[kind] = torch.arange(int(kind.sum())) * 10 // max(1, int(kind.sum()))
    return replace(pairs, fold=fold)


def _source(place: str, field: str) -> Source:
    """Probes or distractors, whole without a share. They may also lie in one folder, as nobody asks who they are."""
    path, view = parse_place(place, field)
    return Source(open_images(path, flat=field == "distractors"), Path(path), view or alignment.WHOLE)

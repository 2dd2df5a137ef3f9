"""Recipes by rule: from what is known of somebody's images, weights and device to a recipe, with the reasons.

Where a rule comes from a measurement, docs/evidence has it. Whoever knows better changes a field.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from isosphere.recipes.constraints import label
from isosphere.recipes.data import Fit
from isosphere.recipes.losses import MultiSimilarity
from isosphere.recipes.schema import (
    Adam,
    AdamW,
    Baseline,
    Batches,
    Cosine,
    Folder,
    Loop,
    Model,
    MultiStep,
    Optimizer,
    Recipe,
    Schedule,
    Validation,
)

NETWORKS = {True: "resnet50.tv_in1k", False: "efficientnet_lite0.ra_in1k"}
"""Networks of timm's hub, on a GPU and on a CPU."""
SCRATCH = "small_cnn"
HUB = "hub"
TRANSFORMERS = ("vit", "deit", "beit", "swin", "eva", "cait", "xcit", "convnext", "maxvit", "coat")
"""How names begin of networks that train by AdamW with rates that fall with depth."""
FEW = 16  # classes, below which a half of them would say too little
SHARE_OF_CLASSES, SHARE_OF_IMAGES = 0.5, 0.7  # that train and validate
HELD_OUT = 0.2  # of these, to validate
PASSES = 20  # over the training images; CUB-200-2011 had 16 in trials and 33 in final runs
PATIENCE = 5  # of ten evaluations
SLOW = 1.25e-5  # of head and backbone: the baseline's best with a head from PCA, over CUB and Cars
NARROW = 1.4  # height by width, or the inverse, from which on a square would lose too much


CONSTRAINT = "SEC helps at some rates and hurts at others, and `isosphere tune` compares them"
CLAIM = "your own images: no constraint"


@dataclass(frozen=True)
class Facts:
    """What is known before anything is chosen."""

    images: int  # in all parts
    classes: int
    per_class: int  # images of the median class
    height: int  # of the median image
    width: int
    gpu: bool
    cores: int
    trained: tuple[int, int] | None = None  # images and classes of the training part of a given split
    shared: bool = False  # classes of its test part are trained on
    validation: bool = False  # it has a part for validation
    backbone: str = ""  # empty where nobody named one and no weights are at hand
    weights: str = ""  # a file, or "hub"; empty without any
    features: int = 0  # of the backbone
    side: int = 0  # that its weights are used to, 0 for any
    asked_size: tuple[int, int] | None = None  # height and width that somebody wants
    asked_batch: int = 0  # images
    asked_steps: int = 0

    @property
    def by_images(self) -> bool:
        """Whether classes are too few to set some apart for testing."""
        return self.trained is None and self.classes < FEW

    @property
    def training(self) -> tuple[int, int]:
        """Images and classes that train, less those that validate."""
        share = SHARE_OF_IMAGES if self.by_images else SHARE_OF_CLASSES
        if self.trained is not None:
            images, classes = self.trained
        else:
            images, classes = round(share * self.images), round((1 if self.by_images else share) * self.classes)
        if self.validation or not self.validates:
            return images, classes
        if self.by_images or self.shared:
            return round((1 - HELD_OUT) * images), classes
        left = classes - held_classes(classes)
        return round(images * left / max(1, classes)), left

    @property
    def validates(self) -> bool:
        """Whether there is enough to hold some out of it: two of each class with four, or two of four classes."""
        if self.by_images:
            return self.per_class - max(2, int(self.per_class * (1 - SHARE_OF_IMAGES))) >= 4
        images, classes = self.trained or (self.images, round(SHARE_OF_CLASSES * self.classes))
        return images >= 4 * classes if self.shared else classes >= 4

    @property
    def narrow(self) -> float:
        """The longer side by the shorter one."""
        return max(self.height, self.width) / max(1, min(self.height, self.width))

    @property
    def transformer(self) -> bool:
        """Whether the backbone is trained as transformers are, and knows one size."""
        return self.backbone.rpartition("/")[2].startswith(TRANSFORMERS)


class Choice(NamedTuple):
    """What was chosen about a part of the recipe, why, and the options that change it."""

    part: str
    what: str
    why: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.part}: {self.what}; {self.why} ({', '.join(f'--{option}' for option in self.options)})"


class Chosen(NamedTuple):
    """A recipe and its choices."""

    recipe: Recipe
    choices: tuple[Choice, ...]


def choose(facts: Facts, data: Folder) -> Chosen:
    """The recipe for these images, which `data` says where to find."""
    batches = batching(facts)
    recipe = Recipe(
        claim=CLAIM, data=shaping(facts, data), model=modeling(facts),
        loss=MultiSimilarity(), constraint=Baseline(), batches=batches, optimizer=optimizing(facts),
        schedule=scheduling(facts), loop=looping(facts, batches), validation=validating(facts),
    )  # fmt: skip
    return Chosen(recipe, explained(facts, recipe, ()))


def plain(recipe: Recipe) -> Recipe:
    """The recipe that names its run: with the loss and constraint that the rules choose."""
    return replace(recipe, claim=CLAIM, loss=MultiSimilarity(), constraint=Baseline())


# ---------------------------------------------------------------- the rules


def modeling(facts: Facts) -> Model:
    """A pretrained network whose head starts as principal components of its features; else a small one."""
    if not facts.weights:
        return Model(backbone=facts.backbone or SCRATCH, dim=128)
    hub = facts.weights == HUB
    return Model(
        backbone=facts.backbone, weights=None if hub else facts.weights, pretrained=hub, head_start="pca",
        dim=min(512, facts.features), freeze_bn=not facts.transformer,
    )  # fmt: skip


def shaping(facts: Facts, data: Folder) -> Folder:
    """What the network sees: the side that its weights know, less of small images, a rectangle of narrow ones."""
    if facts.by_images:
        data = replace(data, split_by="images", train_fraction=SHARE_OF_IMAGES)
    data = replace(data, allow_shared=facts.shared)
    if facts.asked_size is not None:
        (high, wide), shorter = facts.asked_size, min(facts.asked_size)
        square = high == wide
        fit: Fit = "crop" if square and facts.narrow < NARROW else "pad" if square else "squash"
        return replace(data, size=high if square else f"{high}x{wide}", shorter=-(-shorter * 8 // 7), fit=fit)
    short, side = min(facts.height, facts.width), 64
    if facts.weights:
        side = facts.side or 224
        if not facts.transformer:
            side = side if short >= 160 else 160 if short >= 96 else 128
    if facts.narrow < NARROW or facts.transformer:
        fit = "pad" if facts.narrow >= NARROW else "crop"
        return replace(data, size=side, shorter=-(-side * 8 // 7), fit=fit)
    shorter = min(side, 160)
    longer = 32 * max(1, round(min(2.0, facts.narrow) * shorter / 32))
    size = f"{longer}x{shorter}" if facts.height > facts.width else f"{shorter}x{longer}"
    return replace(data, size=size, shorter=-(-shorter * 9 // 8), fit="squash", scale=(0.5, 1.0))


def batching(facts: Facts) -> Batches:
    """Four images of each of 30 classes, on a CPU of 15; more of each where classes are few."""
    most = 30 if facts.gpu else 15
    classes = max(1, min(most, facts.training[1]))
    there = facts.per_class * facts.training[0] // max(1, facts.images) if facts.by_images else facts.per_class
    per_class = max(4, min(4 * most // classes, there))
    if size := facts.asked_batch:
        fitting = [count for count in range(2, size // 2 + 1) if size % count == 0 and size // count <= classes]
        per_class = min(fitting, key=lambda count: (abs(count - per_class), -count), default=per_class)
        return Batches(size=size, per_class=per_class) if size % per_class == 0 else Batches(size, 1)
    return Batches(size=classes * per_class, per_class=per_class)


def validating(facts: Facts) -> Validation:
    """A part of the training classes, or of the images where classes are few; nothing more where one is given."""
    if facts.validation or not facts.validates:
        return Validation()
    trained = facts.trained[1] if facts.trained else round(SHARE_OF_CLASSES * facts.classes)
    several = not (facts.by_images or facts.shared) and held_classes(trained) != max(2, round(HELD_OUT * trained))
    return Validation(held_out=held_classes(trained) if several else HELD_OUT)


def held_classes(trained: int) -> int:
    """How many of the training classes validate: a fifth, but four where there are twelve, as two say little."""
    return max(2, round(HELD_OUT * trained), min(4, trained // 3))


def optimizing(facts: Facts) -> Optimizer:
    """Low rates for pretrained weights, and the same for a head that starts as PCA."""
    if not facts.weights:
        return Adam(lr=1e-3)
    if facts.transformer:
        return AdamW(lr=SLOW, weight_decay=0.05, layer_decay=0.75)
    return Adam(lr=SLOW, weight_decay=5e-4)


def scheduling(facts: Facts) -> Schedule:
    """Pretrained weights are warmed up, and rates fall to the end."""
    return Cosine(warmup=0.05) if facts.weights else MultiStep(at=(0.7,), factor=0.1)


def looping(facts: Facts, batches: Batches) -> Loop:
    """So many passes over the training images, within limits, and ten evaluations."""
    least, most = (200, 4000) if facts.gpu else (100, 600)
    steps = facts.asked_steps or min(most, max(least, round(PASSES * facts.training[0] / batches.size)))
    every = -(-steps // 10)
    steps, workers = facts.asked_steps or 10 * every, min(8, facts.cores)
    watched = facts.validation or facts.validates
    patience = PATIENCE if facts.weights and watched else 0  # from scratch the first steps say little
    return Loop(steps=steps, eval_every=every, save_every=every, patience=patience, workers=workers)


# ---------------------------------------------------------------- in words


def explained(facts: Facts, recipe: Recipe, asked: Collection[str]) -> tuple[Choice, ...]:
    """The choices in five lines, with those that somebody `asked` for; of parts of other kinds nothing is said."""
    data, model, loop, batches = recipe.data, recipe.model, recipe.loop, recipe.batches
    found = [Choice("constraint", label(recipe.constraint), CONSTRAINT, ("constraint",))]
    if isinstance(batches, Batches):
        steps = f"{loop.steps:,} steps of {batches.size} images, {batches.per_class} of a class"
        steps += f", rate {recipe.optimizer.lr:g}"
        why = f"{PASSES} passes over the images, within limits"
        why += f", less after {loop.patience} evaluations without gain" if loop.patience else ""
        found.append(Choice("training", steps, why, ("loop.steps", "batches.size", "optimizer.lr")))
    if isinstance(data, Folder):
        options = ("validation.held_out", "data.split_by")
        words = split_words(facts, recipe.validation.held_out)
        found.append(Choice("split", words, f"there are {facts.classes:,} classes", options))
        shape = f"the median image has {facts.height} x {facts.width}"
        found.append(Choice("images", f"{data.size} pixels, fit {data.fit}", shape, ("data.size", "data.fit")))
    if isinstance(model, Model):
        options = ("model.backbone", "model.weights")
        if model.weights or model.pretrained:
            source = "weights of timm's hub" if model.pretrained else f"weights in {model.weights}"
            start = "its head starts as principal components" if model.head_start == "pca" else "its head is random"
            found.append(Choice("network", f"{model.backbone}, {source}, {model.dim} dimensions", start, options))
        else:
            what = f"{model.backbone} from scratch: a smoke test"
            found.append(Choice("network", what, "no pretrained weights are at hand", options))
    said = [one._replace(why="as asked") if {*one.options} & {*asked} else one for one in found]
    return tuple(reversed(said))


def split_words(facts: Facts, held_out: float) -> str:
    """What chooses the checkpoint, and what tests."""
    kind = "images of each class" if facts.by_images or facts.shared else "classes"
    share = f"{int(held_out)}" if held_out >= 1 else f"{held_out:.0%}"
    held = "your validation part" if facts.validation else f"{share} of the training {kind}"
    held = held if facts.validation or held_out else "its number, the last"
    tested = "three tenths of the images" if facts.by_images else "half of the classes"
    return f"checkpoint by {held}, test on {'your test part' if facts.trained else tested}"

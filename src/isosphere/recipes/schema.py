"""What a run is made of: frozen dataclasses with the reason under each field; no torch, so `--help` is instant.

Durations inside a recipe (milestones, ramps) are fractions of training: changing `steps` keeps its shape. The unions
below, and `Loss` in `losses.py`, are the registry: the command line and the JSON loader in `options.py` read them.
"""

from dataclasses import dataclass, field
from typing import Literal

from isosphere.recipes.losses import Loss, MultiSimilarity


def _at_least(options: object, least: float, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


def _positive(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be above 0, not {value}")


def _shares(scale: tuple[float, float]) -> None:
    if not 0 < scale[0] <= scale[1] <= 1:
        raise ValueError(f"scale must be two shares of the area in order, not {scale}")


# ---------------------------------------------------------------- data


@dataclass(frozen=True)
class Rendered:
    """Characters of many scripts drawn from the fonts that matplotlib ships: real work, no download."""

    classes: int = 300
    """Characters drawn; the first half of the classes trains, the other half is never seen in training."""
    per_class: int = 16
    """Images of each character."""
    size: int = 32
    """Pixels a side."""
    seed: int = 0
    """Chooses the characters and draws the images; not the seed of the run, so that runs share their data."""
    shift: int = 2
    """Random shift in training, in pixels."""

    def __post_init__(self) -> None:
        _at_least(self, 2, "classes")
        _at_least(self, 1, "per_class", "size")
        _at_least(self, 0, "seed", "shift")


@dataclass(frozen=True)
class Folder:
    """Your own images: a folder of class folders, or a CSV of path,label[,split]."""

    root: str = ""
    """The folder, or the CSV file."""
    train_fraction: float = 0.5
    """Share of the classes to train on, in order of name; the rest is for testing. A CSV's split column wins."""
    size: int = 227
    """Pixels a side that the network sees (App. B.1)."""
    shorter: int = 256
    """Every image is first resized to this shorter side (App. B.1)."""
    scale: tuple[float, float] = (0.16, 1.0)
    """Share of the image's area that a training crop covers (App. B.1)."""
    flip: bool = True
    """Mirror half of the training crops."""
    skip_unreadable: bool = False
    """Train without the files that cannot be decoded, instead of stopping at them."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "size", "shorter")
        _shares(self.scale)


@dataclass(frozen=True)
class Benchmark:
    """A retrieval benchmark of the paper, split by class as in its Table 1."""

    name: Literal["cub200", "cars196", "sop", "inshop"] = "cub200"
    """CUB-200-2011, Cars196, Stanford Online Products or DeepFashion In-Shop."""
    root: str = "data"
    """The folder it is in."""
    size: int = 227
    """Pixels a side that the network sees (App. B.1)."""
    shorter: int = 256
    """Every image is first resized to this shorter side (App. B.1)."""
    scale: tuple[float, float] = (0.16, 1.0)
    """Share of the image's area that a training crop covers (App. B.1)."""
    flip: bool = True
    """Mirror half of the training crops."""
    held_out: int = 0
    """Train without the last so many training classes and measure on them, so that tuning never sees test classes."""
    pack: str = ""
    """Folder for the images decoded once; it lives on the GPU where it fits. Empty: decode in worker processes."""
    allow_missing: bool = False
    """Go on with an incomplete copy; what is missing is recorded in the run."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "size", "shorter")
        _at_least(self, 0, "held_out")
        _shares(self.scale)


Data = Rendered | Folder | Benchmark

# ---------------------------------------------------------------- the norm constraint


@dataclass(frozen=True)
class Constraint:
    """What is done about the norms; the default does nothing."""

    eta: float = 0.0
    """Weight of the penalty; 0 is no constraint."""
    radius: Literal["batch", "ema", "initial"] | float = "batch"
    """SEC, SEC-EMA, the first batch's mean, or a constant of which 0 is L2-reg."""
    rho: float = 0.01
    """Weight of the newest batch in SEC-EMA's radius (Table 9)."""
    relative: bool = False
    """Penalise |f| / radius - 1, so that eta does not depend on the embeddings' scale."""
    ramp: tuple[float, float] = (0.0, 0.0)
    """Fractions of training between which eta rises: SimCLR (0, 1), faces (3/16, 4/16), else constant."""
    balanced: bool = False
    """Leave the norms alone and divide the gradient by their mean instead (`balanced_directions`)."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "eta")
        if not 0 <= self.rho <= 1:
            raise ValueError(f"rho must lie in [0, 1], not {self.rho}")
        if self.relative and self.radius == 0:
            raise ValueError("relative divides by the radius, so it cannot go with radius 0 (L2-reg)")
        if not 0 <= self.ramp[0] <= self.ramp[1] <= 1:
            raise ValueError(f"ramp must be two fractions of training in order, not {self.ramp}")


# ---------------------------------------------------------------- model, batches, optimiser


@dataclass(frozen=True)
class Model:
    """A backbone and a head that gives raw embeddings."""

    backbone: str = "small_cnn"
    """small_cnn, resnet50_v1 (Caffe form), bn_inception, or any model of timm or torchvision by name."""
    weights: str | None = None
    """A local .safetensors or .pth file for the backbone; none starts from scratch."""
    head: Literal["bn_fc", "fc", "mlp"] = "bn_fc"
    """The paper's head is batch norm and a linear layer (App. B.1); mlp is SimCLR's."""
    dim: int = 512
    """Length of an embedding."""
    freeze_bn: bool = False
    """Keep the backbone's batch norm as pretrained (App. B.1); the head's always trains."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "dim")


@dataclass(frozen=True)
class Batches:
    """Random classes, and a few images of each."""

    size: int = 120
    """Images of a batch over all processes."""
    per_class: int = 4
    """Images of a class; the paper has 3, 3, 2, 5 for its four losses."""

    def __post_init__(self) -> None:
        if self.per_class < 1 or self.size < 1 or self.size % self.per_class:
            raise ValueError(f"{self.size} images are no multiple of {self.per_class} per class")


@dataclass(frozen=True)
class Adam:
    """Adam with coupled weight decay, as the paper's retrieval runs."""

    lr: float = 1e-3
    """Of the head and of class weights."""
    backbone_lr: float | None = None
    """Of the backbone; none means the same."""
    weight_decay: float = 0.0
    """Not on batch-norm parameters."""

    def __post_init__(self) -> None:
        _positive(self, "lr", "backbone_lr")
        _at_least(self, 0, "weight_decay")


@dataclass(frozen=True)
class SGD:
    """SGD with momentum, as the paper's face and SimCLR runs."""

    lr: float = 0.1
    """Of the head and of class weights."""
    backbone_lr: float | None = None
    """Of the backbone; none means the same."""
    weight_decay: float = 5e-4
    """Not on batch-norm parameters."""
    momentum: float = 0.9
    """Section 4.1."""

    def __post_init__(self) -> None:
        _positive(self, "lr", "backbone_lr")
        _at_least(self, 0, "weight_decay", "momentum")


Optimiser = Adam | SGD


@dataclass(frozen=True)
class Constant:
    """The learning rate never changes."""


@dataclass(frozen=True)
class MultiStep:
    """The learning rate is multiplied at milestones (Table 6)."""

    at: tuple[float, ...] = (0.625,)
    """Fractions of training: 5k of 8k steps is 0.625."""
    factor: float = 0.1
    """What it is multiplied by at each."""


@dataclass(frozen=True)
class Cosine:
    """The learning rate falls along half a cosine (App. B.3)."""

    final: float = 0.001
    """Share of the first value at the end."""


Schedule = Constant | MultiStep | Cosine

# ---------------------------------------------------------------- the run


@dataclass(frozen=True)
class Loop:
    """How long, how often, how exactly."""

    steps: int = 1000
    """Length of training."""
    eval_every: int = 250
    """Steps between two evaluations on the test classes; there is one at the start and one at the end, too."""
    save_every: int = 250
    """Steps between two checkpoints."""
    log_every: int = 10
    """Steps between two lines of metrics.jsonl."""
    clip: float | None = None
    """Largest norm of the whole gradient."""
    precision: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """auto: bfloat16 autocast on a GPU that has it, else float32. Norms and losses are at least float32 in any case;
    float64 is for checks."""
    deterministic: bool = False
    """On a GPU, slower algorithms with which a resumed run repeats an unbroken one bit for bit; a CPU always does."""
    compile: bool = False
    """Compile the network, and on one GPU capture the whole step in a CUDA graph."""
    workers: int = 2
    """Processes that decode images."""
    snapshot_every: int = 0
    """Steps between two snapshots of norms and directions of a fixed subset of the training images; 0 is never."""
    snapshot_images: int = 512
    """Size of that subset."""
    tensorboard: bool = False
    """Write TensorBoard events, too."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "steps", "eval_every", "save_every", "log_every", "snapshot_images")
        _at_least(self, 0, "workers", "snapshot_every")
        _positive(self, "clip")


@dataclass(frozen=True)
class Recipe:
    """A whole run: change any field with `--group.field value`, or a group's kind with `--group Kind`."""

    claim: str = ""
    """What the run is meant to show."""
    data: Data = field(default_factory=Rendered)
    model: Model = field(default_factory=Model)
    loss: Loss = field(default_factory=MultiSimilarity)
    constraint: Constraint = field(default_factory=Constraint)
    batches: Batches = field(default_factory=Batches)
    optimiser: Optimiser = field(default_factory=Adam)
    schedule: Schedule = field(default_factory=Constant)
    loop: Loop = field(default_factory=Loop)
    seed: int = 0
    """First weights, batches and augmentation."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "seed")

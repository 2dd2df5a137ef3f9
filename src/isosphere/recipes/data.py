"""The data sets as options of a recipe, with the reason for each default. The union at the end is the registry.

Each names the function that opens it (`opened_by`). This takes the option and a device, and returns a `Task`.
"""

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from isosphere.errors import BadArgument
from isosphere.recipes.checks import Checked, Count, Fraction, Range, Share, Shares, Size, Whole
from isosphere.recipes.own import Own, own_name

SplitBy = Literal["classes", "images"]
Jitter = tuple[Fraction, Fraction, Fraction, Annotated[float, Range(least=0, most=0.5)]]
NO_JITTER = (0.0, 0.0, 0.0, 0.0)

Fit = Literal["crop", "pad", "squash"]
Interpolation = Literal["bilinear", "bicubic"]

TAKEN = ("accuracy", "embeddings", "probes", "distractors", "rank1")
"""Names of other things that are measured or kept, which no set of pairs may have."""


class Source(Checked):
    """What training, inference and measuring ask of a data set; nobody asks which kind it is."""

    opened_by: ClassVar[str]
    own: ClassVar[bool] = False
    """Files of one's own, of which some may be unreadable (`skip_unreadable`) or copies of others."""
    labeled: ClassVar[bool] = True
    """Images have classes to train on; without them an image is its own class, and its view jitters colors itself."""
    framed: ClassVar[bool] = False
    """Faces: images are brought to one frame, and embeddings averaged with those of the mirror images."""
    transformed: ClassVar[bool] = False
    """Images are float tensors, made by transforms of the user's own; nothing is done to them."""
    test_root: ClassVar[str] = "root"
    """The field that says where the test images are."""

    @property
    def place(self) -> str:
        """What the images are called in a message: a benchmark's name, or where they are."""
        return self.name or self.root or type(self).__name__

    # What most kinds have as a field; the others have it here.

    @property
    def name(self) -> str:
        """Which of several data sets; empty for one's own images."""
        return ""

    @property
    def root(self) -> str:
        """Where the files are; empty where there are none."""
        return ""

    @property
    def fraction(self) -> float:
        """Share of the shorter side that the frame of a face has."""
        return 1.0

    @property
    def align(self) -> bool:
        """Whether faces are moved to a template."""
        return False

    @property
    def jitter(self) -> Jitter:
        """Limits of a change of brightness, contrast, saturation and hue."""
        return NO_JITTER

    @property
    def randaugment(self) -> int:
        """Magnitude of RandAugment's operations."""
        return 0

    @property
    def erasing(self) -> float:
        """Share of the crops of which a box is erased."""
        return 0.0

    @property
    def label_regex(self) -> str:
        """A pattern for labels in names of files."""
        return ""

    @property
    def group_regex(self) -> str:
        """A pattern for groups in names of files."""
        return ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of a list's columns."""
        return ()

    @property
    def skip_unreadable(self) -> bool:
        """Whether files that cannot be decoded are left out."""
        return False

    @property
    def shorter(self) -> int:
        """The shorter side that a whole image is resized to, by itself that of the view."""
        return min(self.sides)

    @property
    def fit(self) -> Fit:
        """How an image of another shape becomes one of the network's."""
        return "crop"

    @property
    def interpolation(self) -> Interpolation | None:
        """How a resize computes pixels, if the recipe says so."""
        return None

    @property
    def resize(self) -> Interpolation:
        """How a resize computes pixels."""
        return self.interpolation or "bilinear"

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of what the network sees."""
        height, _, width = str(self.size).partition("x")  # type: ignore[attr-defined]  # a field of every kind
        return int(height), int(width or height)

    @property
    def shape(self) -> int | tuple[int, int]:
        """The same, of a square its side."""
        height, width = self.sides
        return height if height == width else (height, width)


@dataclass(frozen=True)
class Rendered(Source):
    """Characters of many scripts drawn from the fonts that matplotlib ships: real work, no download."""

    opened_by = "isosphere.train.retrieval:rendered_task"
    classes: Annotated[int, Range(least=2)] = 300
    """Characters drawn. The first half of them trains; the other half is never seen in training."""
    per_class: Count = 16
    """Images of each character."""
    size: Count = 32
    """Width and height of an image in pixels."""
    seed: Whole = 0
    """Chooses the characters and draws the images. It is not the run's seed, so runs share their data."""
    shift: Whole = 2
    """Largest random shift in training, in pixels."""


@dataclass(frozen=True)
class Folder(Source):
    """Your own images: class folders, or train/ and test/ with these, or labels in names of files, or a list.

    A list is a CSV or Parquet file of path,label and, if you have them, split, role (query or gallery) and group.
    """

    opened_by = "isosphere.train.retrieval:folder_task"
    own = True
    root: str = ""
    """The folder, or the list: a CSV or Parquet file."""
    label_regex: str = ""
    """Labels from names of files, however deep the folders: the first group of this regular expression. (\\d+)_ makes
    0002 of 0002_c1s1_000451_03.jpg. One with a slash is searched in the path, not the name."""
    group_regex: str = ""
    """Groups from names of files, likewise: c(\\d) is the camera above. Images of one class and group do not count as
    matches."""
    columns: tuple[str, ...] = ()
    """Columns of a list with names of their own: path=file,label=person,split=part,role=kind,group=camera."""
    train_fraction: Fraction = 0.5
    """Share of the classes to train on, chosen by `seed`; the others are for testing. If there are train/ and test/
    folders, or a list with a column split, those decide."""
    split_by: SplitBy = "classes"
    """What is set apart for testing: whole classes, which is what search among new things needs, or images of each
    class, as there is no other way with few classes. Then train_fraction is of these."""
    seed: Whole | None = 0
    """Chooses the classes at random. It is not the run's seed, so runs share their split. none is first by name."""
    folds: Whole = 0
    """Split the classes into so many equal folds: one is for testing, the others train. 0 goes by train_fraction."""
    fold: Count = 1
    """Which of the folds is for testing, from 1 to `folds`."""
    split: str = ""
    """The split.json of another run: train and test on the same classes again. It wins over all other ways."""
    allow_shared: bool = False
    """Allow classes that are both in train and in test. Then other images of trained classes are tested."""
    size: Size = 227
    """What the network sees, in pixels: the side of a square, or height x width, as 256x128 (App. B.1)."""
    fit: Fit = "crop"
    """How a whole image becomes this shape. crop takes the middle of it, pad puts all of it into a gray frame, squash
    takes all of it and changes its proportions."""
    shorter: Count = 256
    """Every image is first resized to this shorter side, as its fit says (App. B.1)."""
    interpolation: Interpolation | None = None
    """How that resize computes pixels. none is what weights from the hub ask for, else bilinear."""
    scale: Shares = (0.16, 1.0)
    """Least and largest share of the image's area that a training crop covers (App. B.1)."""
    flip: bool = True
    """Mirror half of the training crops."""
    jitter: Jitter = NO_JITTER
    """Limits of a random change of brightness, contrast, saturation and hue of training crops; 0.4,0.4,0.4,0.1 is
    strong."""
    randaugment: Annotated[int, Range(least=0, most=30)] = 0
    """Magnitude of RandAugment's two random operations on each training crop; 9 is usual, 0 is none."""
    erasing: Fraction = 0.0
    """Share of the training crops of which a random box is erased."""
    skip_unreadable: bool = False
    """Leave out files that cannot be decoded, instead of stopping at them."""
    cache: str = "auto"
    """Where images are kept that were decoded once. auto is ~/.cache/isosphere, or what ISOSPHERE_CACHE or
    XDG_CACHE_HOME say; else a folder. none decodes them at each step. Results are the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _inside(self)
        _one_split(self)
        _names(self)


@dataclass(frozen=True)
class Benchmark(Source):
    """A retrieval benchmark of the paper, split by class as in its Table 1."""

    opened_by = "isosphere.train.retrieval:benchmark_task"
    name: Literal["cub200", "cars196", "sop", "inshop"] = "cub200"
    """CUB-200-2011, Cars196, Stanford Online Products or DeepFashion In-Shop."""
    root: str = "data"
    """The folder that holds the data set."""
    size: Count = 227
    """Width and height that the network sees, in pixels (App. B.1)."""
    shorter: Count = 256
    """Every image is first resized to this shorter side (App. B.1)."""
    interpolation: Interpolation | None = None
    """How that resize computes pixels. none is what weights from the hub ask for, else bilinear."""
    scale: Shares = (0.16, 1.0)
    """Least and largest share of the image's area that a training crop covers (App. B.1)."""
    flip: bool = True
    """Mirror half of the training crops."""
    cache: str = "auto"
    """Where images are kept that were decoded once. auto is ~/.cache/isosphere, or what ISOSPHERE_CACHE or
    XDG_CACHE_HOME say; else a folder. none decodes them at each step. Results are the same."""
    pack: str = ""
    """As a folder for cache, of older recipes. On a CPU crops are then made as on a GPU, to one gray level."""
    allow_missing: bool = False
    """Go on with an incomplete copy. The run records what is missing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _inside(self)


@dataclass(frozen=True)
class Faces(Source):
    """People to train on, pairs of photographs to verify, probes to identify among distractors (Section 3.4)."""

    opened_by = "isosphere.train.faces:faces_task"
    own = framed = True
    test_root = "pairs_root"
    root: str = ""
    """A folder with a folder for each person, or a RecordIO pair: a .rec next to its .idx, or the folder of both."""
    exclude: str = ""
    """A text file of people to leave out of training, one name a line: those of the test sets."""
    min_images: Count = 1
    """People with fewer images are left out."""
    align: bool = True
    """Move faces to ArcFace's template where there are landmarks: a landmarks.txt next to the images, or CFP's
    fiducials. Images without landmarks are cut to a central square."""
    fraction: Share = 1.0
    """Share of the shorter side that the square has, for training and for pairs of your own. LFW takes 0.52."""
    pairs: tuple[str, ...] = ("lfw", "agedb_30", "cfp_fp")
    """Verification sets: lfw, lfw_dev (its view 1, to choose on), cfp_fp, cfp_ff, agedb_30. Or a name of your own, with
    a pack (name.bin) or a list (name_pair.txt). name:0.43 cuts its photographs to this fraction."""
    pairs_root: str = ""
    """The folder that holds these sets, as folders (lfw/, cfp/) or packs (lfw.bin)."""
    probes: str = ""
    """Photographs to identify: a folder of people or a CSV of path,label. Empty: none."""
    distractors: tuple[str, ...] = ()
    """Folders or CSVs of other people. The probes are searched among them."""
    allow_missing: bool = False
    """Go on with an incomplete set of pairs. The run records what is missing."""
    skip_unreadable: bool = False
    """Leave out files that cannot be decoded, instead of stopping at them. Pairs must be whole."""
    cache: str = "auto"
    """Where images are kept that were decoded once. auto is ~/.cache/isosphere, or what ISOSPHERE_CACHE or
    XDG_CACHE_HOME say; else a folder. none decodes them at each step. Results are the same."""

    size: ClassVar[int] = 112

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [place.partition(":")[0] for place in self.pairs]
        if taken := [name for name in names if name in TAKEN]:
            raise BadArgument("pairs", taken[0], "a name that no other measurement has")
        if twice := [name for name in names if names.count(name) > 1]:
            raise BadArgument("pairs", twice[0], "a name that stands there once")


@dataclass(frozen=True)
class Cifar(Source):
    """CIFAR-10 or CIFAR-100, unlabeled for training: two views of an image belong together (App. B.3)."""

    opened_by = "isosphere.train.contrastive:cifar_task"
    labeled = False
    name: Literal["cifar10", "cifar100"] = "cifar10"
    """Which of the two. Their labels serve evaluation alone."""
    root: str = "data"
    """The folder with the standard Python files, or with class folders in train/ and test/."""
    download: bool = False
    """Download the archive if it is not there."""
    scale: Shares = (0.2, 1.0)
    """Least and largest share of the image's area that a crop covers."""
    jitter: Jitter = (0.4, 0.4, 0.4, 0.1)
    """Limits of the change of brightness, contrast, saturation and hue."""

    size: ClassVar[int] = 32


@dataclass(frozen=True)
class Unlabeled(Source):
    """Your own images without labels, or with class folders that serve evaluation alone."""

    opened_by = "isosphere.train.contrastive:unlabeled_task"
    own, labeled = True, False
    root: str = ""
    """A folder of images, also in folders in folders, or of class folders. With class folders every fifth image is for
    testing and not trained on; if there are train/ and test/ folders, those in test/ are."""
    size: Size = 64
    """What the network sees, in pixels: the side of a square, or height x width, as 256x128."""
    fit: Fit = "crop"
    """How a whole image becomes this shape. crop takes the middle of it, pad puts all of it into a gray frame, squash
    takes all of it and changes its proportions."""
    shorter: Count = 72
    """Every image is first resized to this shorter side, as its fit says."""
    interpolation: Interpolation | None = None
    """How that resize computes pixels. none is what weights from the hub ask for, else bilinear."""
    scale: Shares = (0.2, 1.0)
    """Least and largest share of the image's area that a crop covers."""
    flip: bool = True
    """Mirror half of the crops."""
    jitter: Jitter = (0.4, 0.4, 0.4, 0.1)
    """Limits of the change of brightness, contrast, saturation and hue."""
    skip_unreadable: bool = False
    """Leave out files that cannot be decoded, instead of stopping at them."""
    cache: str = "auto"
    """Where images are kept that were decoded once. auto is ~/.cache/isosphere, or what ISOSPHERE_CACHE or
    XDG_CACHE_HOME say; else a folder. none decodes them at each step. Results are the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _inside(self)


@dataclass(frozen=True)
class OwnData(Own, Source):
    """A map-style dataset of your own that gives (image, label), or two of them, to train and to test on.

    PIL images, arrays and uint8 tensors are cropped and flipped as these fields say. Float tensors stay as your own
    transforms have made them, and need a model of your own.
    """

    opened_by = "isosphere.train.own:own_task"
    kept = (
        "size", "fit", "shorter", "interpolation", "scale", "flip", "train_fraction", "split_by", "seed", "folds",
        "fold", "split", "jitter", "randaugment", "erasing",
    )  # fmt: skip
    transformed: bool = False  # type: ignore[misc]  # a field here alone
    """Whether the images are float tensors; the run finds out."""
    train_fraction: Fraction = 0.5
    """Share of the classes to train on, chosen by `seed`; the others are for testing. A test set of your own wins."""
    split_by: SplitBy = "classes"
    """What is set apart for testing: whole classes, or images of each class. Then train_fraction is of these."""
    seed: Whole | None = 0
    """Chooses the classes at random. It is not the run's seed, so runs share their split. none is first by name."""
    folds: Whole = 0
    """Split the classes into so many equal folds: one is for testing, the others train. 0 goes by train_fraction."""
    fold: Count = 1
    """Which of the folds is for testing, from 1 to `folds`."""
    split: str = ""
    """The split.json of another run: train and test on the same classes again. It wins over all other ways."""
    size: Size = 64
    """What the network sees, in pixels: the side of a square, or height x width, as 256x128."""
    fit: Fit = "crop"
    """How a whole image becomes this shape. crop takes the middle of it, pad puts all of it into a gray frame, squash
    takes all of it and changes its proportions."""
    shorter: Count = 72
    """Every image is first resized to this shorter side, as its fit says."""
    interpolation: Interpolation | None = None
    """How that resize computes pixels. none is what weights from the hub ask for, else bilinear."""
    scale: Shares = (0.16, 1.0)
    """Least and largest share of the image's area that a training crop covers."""
    flip: bool = True
    """Mirror half of the training crops."""
    jitter: Jitter = NO_JITTER
    """Limits of a random change of brightness, contrast, saturation and hue of training crops; 0.4,0.4,0.4,0.1 is
    strong."""
    randaugment: Annotated[int, Range(least=0, most=30)] = 0
    """Magnitude of RandAugment's two random operations on each training crop; 9 is usual, 0 is none."""
    erasing: Fraction = 0.0
    """Share of the training crops of which a random box is erased."""

    @property
    def place(self) -> str:
        return own_name(self.path)

    def __post_init__(self) -> None:
        super().__post_init__()
        _inside(self)
        _one_split(self)


def _inside(data: Folder | Benchmark | Unlabeled | OwnData) -> None:
    """A central crop larger than the image would have a black rim, which training crops do not have."""
    side = min(data.sides)
    if side > data.shorter:
        raise BadArgument("shorter", data.shorter, f"at least the size, {side}, and better {-(-side * 9 // 8)}")


def _names(data: Folder) -> None:
    """A pattern has a group, whose text is the label; a column is named once, and for something."""
    for field in ("label_regex", "group_regex"):
        pattern = getattr(data, field)
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise BadArgument(field, pattern, f"a regular expression ({error})") from error
        if pattern and not groups:
            raise BadArgument(field, pattern, "a regular expression with a group in brackets, whose text it gives")
    meanings = [column.partition("=")[0] for column in data.columns]
    if wrong := [column for column in data.columns if not re.fullmatch("(path|label|split|role|group)=.+", column)]:
        raise BadArgument("columns", wrong[0], "pairs such as label=person, of path, label, split, role or group")
    if len(set(meanings)) < len(meanings):
        raise BadArgument("columns", data.columns, "one name for each column")


def _one_split(data: Folder | OwnData) -> None:
    """A fold is one of the folds, and a split of before has no other."""
    if data.folds == 1:
        raise BadArgument("folds", data.folds, "0, or 2 or more")
    if data.fold > max(1, data.folds):
        raise BadArgument("fold", data.fold, f"from 1 to folds, which is {data.folds}")
    if data.split and data.folds:
        raise BadArgument("split", data.split, "left out where there are folds, or folds where there is a split")


Data = Rendered | Folder | Benchmark | Faces | Cifar | Unlabeled | OwnData

"""How the four retrieval benchmarks lie on disk: their lists read into images with class and split.

| name | layouts |
|---|---|
| cub200 | `images.txt`, `image_class_labels.txt`, `images/`; or class folders |
| cars196 | `cars_annos.mat`, `car_ims/`; or `devkit/`, `cars_test_annos_withlabels.mat`, `cars_train/`, `cars_test/`;
|         | or class folders |
| sop | `Ebay_train.txt`, `Ebay_test.txt` and the images next to them |
| inshop | `list_eval_partition.txt` (also in `Eval/` or `Anno/`) and `img/` (also in `Img/`) |

Class folders stand in the root, in `images/`, or in `train/` and `test/` (a split for classification, merged back).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from isosphere.errors import BadList, NotFound, need

from .images import ImageSet
from .lists import ordered, subfolders
from .text_lists import lines


class Counts(NamedTuple):
    """Classes and images for training and testing (Table 1)."""

    train_classes: int
    test_classes: int
    train_images: int
    test_images: int


class Listed(NamedTuple):
    """One image of a benchmark: its file, class and role. The order of the classes decides the split."""

    path: Path
    label: str
    split: str  # train or test; for In-Shop also query or gallery


def home(source: "Source", root: Path) -> Path | None:
    """The folder with the benchmark's layout: the root itself, or one of its usual names below it."""
    for folder in (root, *(root / name for name in source.folders)):
        if folder.is_dir() and (
            any(all((folder / part).exists() for part in parts) for parts in source.marks)
            or (source.class_folders and _has_class_folders(folder, source))
        ):
            return folder
    return None


def _read_cub(folder: Path, source: "Source") -> Iterator[Listed]:
    if not (folder / "images.txt").is_file():
        return _read_folders(folder, source)
    images = dict(line.split(maxsplit=1) for _, line in lines(folder / "images.txt"))
    labels = dict(line.split() for _, line in lines(folder / "image_class_labels.txt"))
    return (
        Listed(folder / "images" / path, path.split("/")[0], _half(int(labels[number]), source))
        for number, path in images.items()
    )


def _read_cars(folder: Path, source: "Source") -> Iterator[Listed]:
    if (folder / "cars_annos.mat").is_file() and (folder / "car_ims").is_dir():
        files = [(folder / "cars_annos.mat", folder, "relative_im_path")]
    elif (folder / "devkit").is_dir() and (folder / "cars_train").is_dir():
        places = [place / "cars_test_annos_withlabels.mat" for place in (folder, folder / "devkit")]
        labeled = next((place for place in places if place.is_file()), None)
        if labeled is None:
            raise NotFound(places[0], "list of test images with their classes, which the devkit's own lacks,")
        trained = (folder / "devkit" / "cars_train_annos.mat", folder / "cars_train", "fname")
        files = [trained, (labeled, folder / "cars_test", "fname")]
    else:
        return _read_folders(folder, source)
    return (
        Listed(parent / str(row[field]), f"{int(row['class']):03d}", _half(int(row["class"]), source))
        for annotations, parent, field in files
        for row in _annotations(annotations)
    )


def _read_sop(folder: Path, source: "Source") -> Iterator[Listed]:
    for split in ("train", "test"):
        for _, line in lines(folder / f"Ebay_{split}.txt")[1:]:
            _, label, _, path = line.split()
            yield Listed(folder / path, label, split)


def _read_inshop(folder: Path, source: "Source") -> Iterator[Listed]:
    partition = next(folder / path for path in PARTITIONS if (folder / path).is_file())
    parent = folder / "Img" if (folder / "Img" / "img").is_dir() else folder
    for number, line in lines(partition)[2:]:
        path, label, split = line.split()
        if split not in ("train", "query", "gallery"):
            raise BadList(partition, split, "the split train, query or gallery", number)
        yield Listed(parent / path, label, split)


def _read_folders(folder: Path, source: "Source") -> Iterator[Listed]:
    """Class folders in order of name. For Cars196 this halves the classes as the official order does."""
    sets = [ImageSet.folder(place) for place in _class_folders(folder)]
    names = ordered({name for one in sets for name in one.classes})
    odd = [name for name in names if not (name[:3].isdecimal() and name[3:4] == ".")]
    if source.numbered and odd:
        raise BadList(folder, odd, "class folders with their numbers (001.Name), which decide the split")
    split = {name: _half(number, source) for number, name in enumerate(names, start=1)}
    for one in sets:
        for path, label in zip(one.files, one.labels.tolist(), strict=True):
            yield Listed(Path(path), one.classes[label], split[one.classes[label]])


def _class_folders(folder: Path) -> list[Path]:
    split = [folder / part for part in ("train", "val", "test") if (folder / part).is_dir()]
    return split or [folder / "images" if (folder / "images").is_dir() else folder]


def _has_class_folders(folder: Path, source: "Source") -> bool:
    """Whether all classes have a folder. If one were missing, the order of names would give another split."""
    names = {name for place in _class_folders(folder) for name in subfolders(place)}
    return len(names) == source.counts.train_classes + source.counts.test_classes


def _half(number: int, source: "Source") -> str:
    """The zero-shot split: the first half of the classes, counted from 1, trains."""
    return "train" if number <= source.counts.train_classes else "test"


def _annotations(path: Path) -> Any:
    if not path.is_file():
        raise NotFound(path, "list")
    return need("scipy.io", "train", "reading Matlab's lists of Cars196").loadmat(path, squeeze_me=True)["annotations"]


PARTITIONS = tuple(f"{place}list_eval_partition.txt" for place in ("Eval/", "Anno/", ""))


@dataclass(frozen=True)
class Source:
    """A benchmark: its size, how it is recognized and read, and where it officially comes from."""

    title: str
    counts: Counts
    layout: str
    folders: tuple[str, ...]
    marks: tuple[tuple[str, ...], ...]
    read: Callable[[Path, "Source"], Iterator[Listed]]
    address: str
    archive: str = ""  # a direct address of the whole archive, where it is known to be stable
    md5: str = ""
    class_folders: bool = False
    numbered: bool = False  # whether class folders must begin with their number, since their names have no order


SOURCES = {
    "cub200": Source(
        title="CUB-200-2011",
        counts=Counts(100, 100, 5_864, 5_924),
        layout="images.txt with images/, or 200 class folders (also under train/ and test/)",
        folders=("CUB_200_2011", "cub200", "cub"),
        marks=(("images.txt", "image_class_labels.txt", "images"),),
        read=_read_cub,
        address="https://www.vision.caltech.edu/datasets/cub_200_2011/",
        archive="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
        md5="97eceeb196236b17998738112f37df78",
        class_folders=True,
        numbered=True,
    ),
    "cars196": Source(
        title="Cars196",
        counts=Counts(98, 98, 8_054, 8_131),
        layout="cars_annos.mat with car_ims/, devkit/ with cars_train/ and cars_test/, or 196 class folders",
        folders=("cars196", "stanford_cars", "cars"),
        marks=(("cars_annos.mat", "car_ims"), ("devkit", "cars_train", "cars_test")),
        read=_read_cars,
        address="http://ai.stanford.edu/~jkrause/cars/car_dataset.html (its downloads are broken; for copies see "
        "https://github.com/pytorch/vision/issues/7545)",
        class_folders=True,
    ),
    "sop": Source(
        title="Stanford Online Products",
        counts=Counts(11_318, 11_316, 59_551, 60_502),
        layout="Ebay_train.txt and Ebay_test.txt next to the folders of images",
        folders=("Stanford_Online_Products", "sop"),
        marks=(("Ebay_train.txt", "Ebay_test.txt"),),
        read=_read_sop,
        address="https://cvgl.stanford.edu/projects/lifted_struct/",
        archive="http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
        md5="7f73d41a2f44250d4779881525aea32e",
    ),
    "inshop": Source(
        title="DeepFashion In-Shop",
        counts=Counts(3_997, 3_985, 25_882, 26_830),
        layout="list_eval_partition.txt (also in Eval/) with img/ (also in Img/)",
        folders=("In-shop Clothes Retrieval Benchmark", "inshop", "in-shop"),
        marks=tuple((partition, images) for partition in PARTITIONS for images in ("img", "Img/img")),
        read=_read_inshop,
        address="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html",
    ),
}

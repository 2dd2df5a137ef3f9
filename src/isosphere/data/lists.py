"""Image files and their classes, as folders list them; nothing is decoded here."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isosphere.errors import EmptyClasses, NoImages, NotFound

from .paths import Paths

EXTENSIONS = {
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
}  # fmt: skip
UNREAD = {".heic", ".heif", ".avif", ".jxl", ".jp2", ".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".psd", ".svg"}
SIDE_FILES = {  # known not to be images, so that they need no words
    ".txt", ".md", ".rst", ".log", ".json", ".jsonl", ".csv", ".tsv", ".lst", ".xml", ".yaml", ".yml", ".html", ".htm",
    ".pdf", ".db", ".ini", ".lnk", ".url", ".mat", ".npy", ".npz", ".h5", ".hdf5", ".pkl", ".pickle", ".pt", ".pth",
    ".safetensors", ".bin", ".rec", ".idx", ".parquet", ".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".py", ".ipynb",
    ".sh", ".m", ".mp4", ".mov", ".avi", ".aae", ".pts",
}  # fmt: skip
SIDE_NAMES = {"readme", "license", "icon\r"}  # likewise, without an ending
OTHERS = {"__MACOSX", "@eaDir"}  # folders of macOS's archives, and of Synology's thumbnails
ENDINGS = ", ".join(sorted(EXTENSIONS))
ROLES = frozenset({"query", "gallery"})
VALIDATION = ("val", "valid", "validation", "dev")  # which tests where there is no test
SIDES = {"train": "train", "training": "train", "test": "test", "testing": "test"} | dict.fromkeys(VALIDATION, "test")
PARTS = SIDES | {"query": "query", "gallery": "gallery"}
PARTS |= {"bounding_box_train": "train", "bounding_box_test": "gallery"}  # of Market-1501 and sets like it
"""Folders of a split, and what is in them."""
WHOLE = ({"train", "test"}, {"train", "query", "gallery"})
"""The parts that make up a split."""


class Column(NamedTuple):
    """Cells as numbers (N,) of distinct values; -1 where a cell is empty."""

    codes: np.ndarray
    values: list[str]

    @classmethod
    def of(cls, cells: Iterable[str], known: Iterable[str] = ()) -> "Column":
        """Cells with these known values, and with more in the order in which they are first met."""
        number = {value: code for code, value in enumerate(known)}
        codes = [number.setdefault(cell, len(number)) for cell in cells]
        return cls(np.array(codes, np.int64), list(number)).merged()

    def merged(self) -> "Column":
        """Equal values as one, and empty ones as none."""
        number = {value: code for code, value in enumerate(dict.fromkeys(filter(None, self.values)))}
        table = np.array([*(number.get(value, -1) for value in self.values), -1])
        return Column(table[self.codes], list(number))

    def rows(self, rows: np.ndarray) -> "Column":
        """These rows, with the values that they have."""
        codes = self.codes[rows]
        present = np.unique(codes[codes >= 0])
        table = np.full(len(self.values) + 1, -1)  # the last is for empty cells
        table[present] = np.arange(len(present))
        return Column(table[codes], [self.values[code] for code in present.tolist()])

    def cell(self, row: int) -> str:
        """The value of a row."""
        return self.values[self.codes[row]] if self.codes[row] >= 0 else ""

    def apart(self) -> np.ndarray:
        """The numbers (N,), where each empty cell has one of its own."""
        return np.where(self.codes >= 0, self.codes, -1 - np.arange(len(self.codes)))


class Listed(NamedTuple):
    """Files, their classes, and a note on files left out.

    Where something says so: whether each file is for testing or for validation, whether it is a query, and its group.
    """

    paths: Paths
    labels: Column
    left_out: str = ""
    tested: np.ndarray | None = None
    validates: np.ndarray | None = None
    asks: np.ndarray | None = None
    groups: np.ndarray | None = None


def class_folders(root: Path, may_be_empty: Callable[[str], bool], whole: bool = False) -> Listed:
    """Images of root/class/, or of root/train/class/ and root/test/class/ if there are just these two.

    In place of test/ there may be query/ and gallery/. A validation folder may stand next to them. With `whole` there
    is no split.
    """
    if not root.is_dir():
        raise NotFound(root, "folder of class folders")
    names = subfolders(root)
    if not names:
        files, others, _ = inside(root)
        instead = "a folder that holds one folder of images per class"
        instead += ", or train without classes by the recipe simclr-photos" if files else ""
        raise NoImages(root, "class folder", instead, len(files) + others.total())
    spare = spare_parts(names)
    kept = [name for name in names if name not in spare]
    sides = {PARTS.get(name.lower(), name): root / name for name in kept}
    given = len(kept) == len(sides) and sides.keys() in WHOLE and all(map(subfolders, sides.values()))
    places = sorted(sides.items(), reverse=True) if given else [("", root)]  # train is first
    places += [("val", root / name) for name in spare] if given else []
    paths, labels, parts = [], [], []
    classes: dict[str, None] = {}
    left = _stray(root) if given else Counter()
    for side, place in places:
        found, its_left = _classes(place, may_be_empty)
        for name, files in found.items():
            paths += files
            labels += [name] * len(files)
            parts += [side] * len(files)
        classes |= dict.fromkeys(found)
        left += its_left
    split = split_of(parts if given else [], whole)
    return Listed(Paths.of(paths), Column.of(labels, classes), left_out(left), *split)


def split_of(parts: list[str], whole: bool) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Which images are for testing, for validation and queries, by the part of each; None where no part says so."""
    sides = np.array(parts)
    asks = sides == "query"
    if whole or not parts:
        return None, None, asks if asks.any() else None
    held = sides == "val"
    return ~np.isin(sides, ["train", "val"]), held if held.any() else None, asks if asks.any() else None


def flat_folder(root: Path) -> Listed:
    """Images in a folder and in all that it holds, as one class that has its name."""
    files, others, _ = inside(root)
    folders = subfolders(root)
    for name in folders:
        its, more = files_below(root / name)
        files += its
        others += more
    if not files:
        raise NoImages(root, "image", f"a folder with files that end in {ENDINGS}", others.total())
    repair = "for classes give the folder right above theirs"
    flat = f"all {len(files)} images in its folders are taken, without classes; {repair}" if folders else ""
    left = "; ".join(filter(None, (flat, left_out(unread(others)))))
    return Listed(Paths.of(files), Column.of([named(root)] * len(files)), left)


def named(root: Path) -> str:
    """What a folder is called, also the current one."""
    return root.name or root.resolve().name or "images"


def nested(root: Path) -> bool:
    """Whether images are deeper than in class folders, as in 2019/june/. Folders called train or test are a split."""
    hollow = [name for name in subfolders(root) if not inside(root / name)[0] and files_below(root / name)[0]]
    return bool(hollow) and not any(name.lower() in PARTS for name in hollow)


def subfolders(root: Path) -> list[str]:
    """Folders in a folder, in order of name. Hidden ones, other programs' and our runs' are left out."""
    return ordered(name for name in inside(root)[2] if not _is_run(root / name) and not _holds_runs(root / name))


def _is_run(folder: Path) -> bool:
    """Whether it is a run folder of ours, perhaps just begun."""
    return (folder / "recipe.json").is_file() and (folder / "run.json").is_file() or (folder / ".lock").is_file()


def _holds_runs(folder: Path) -> bool:
    """Whether it holds runs: one called runs, or one with nothing else in it."""
    if folder.name == "runs" and any(folder.glob("*/recipe.json")):
        return True
    inner = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                inner.append(Path(entry.path))
            elif _seen(entry.name):  # most often the first: this costs class folders nothing
                return False
    return bool(inner) and all(map(_is_run, inner))


def ordered(names: Iterable[str]) -> list[str]:
    """Names in order; in numeric order where all of them are numbers."""
    names = sorted(names)
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else names


def some(names: Iterable[str], limit: int = 10) -> str:
    """The names in one line, cut after a few."""
    names = list(names)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def spare_parts(parts: list[str]) -> list[str]:
    """The parts called validation, if one part trains and one tests without them."""
    spare = [part for part in parts if part.lower() in VALIDATION]
    rest = [PARTS.get(part.lower(), "") for part in parts if part not in spare]
    return spare if len(rest) == len(set(rest)) and set(rest) in WHOLE else []


def _classes(root: Path, may_be_empty: Callable[[str], bool]) -> tuple[dict[str, list[str]], Counter[str]]:
    """The images of each class folder, and how many images are left out, by the reason."""
    found, left, empty, deeper, unfit = {}, _stray(root), [], 0, 0
    for name in subfolders(root):
        found[name], others, inner = inside(root / name)
        deeper += sum(len(files_below(root / name / folder)[0]) for folder in inner)
        left += unread(others)
        if not found[name] and not may_be_empty(name):
            empty.append(name)
            unfit += others.total()
    if empty:
        raise EmptyClasses(root, empty, len(found), deeper, unfit)
    return found, left + Counter({"deeper than in a class folder": deeper})


def _stray(root: Path) -> Counter[str]:
    files, others, _ = inside(root)
    return Counter({"next to the class folders": len(files)}) + unread(others)


def inside(folder: Path) -> tuple[list[str], Counter[str], list[str]]:
    """Directly in a folder: images in order of name, endings of other files, names of folders.

    A pipe, a socket or a device called .png would be waited for without end. In place of its ending stands its name.
    """
    others: Counter[str] = Counter()
    images, folders = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _seen(entry.name):
                continue
            if entry.is_dir():
                folders.append(entry.name)
            elif not _is_image(entry.name):
                others[_other_ending(entry.name)] += 1
            elif entry.is_file() or not os.path.exists(entry.path):  # a link to nothing is an image that cannot be read
                images.append(entry.path)
            else:
                others[f"called {entry.name}, but no plain file"] += 1
    return sorted(images), others, folders


def files_below(folder: Path) -> tuple[list[str], Counter[str]]:
    """In a folder and all folders below: images in order of name, endings of other files."""
    images, others, folders = inside(folder)
    for name in sorted(folders):
        if not (folder / name).is_symlink():  # which may be a circle
            its, more = files_below(folder / name)
            images += its
            others += more
    return images, others


def unread(others: Counter[str]) -> Counter[str]:
    """Of other files those that may be images, by the reason."""
    kept = sorted(others.keys() - SIDE_FILES)
    ending = {its: f"that end in {its}" for its in kept if its.startswith(".")} | {"": "without an ending"}
    return Counter({ending.get(its, its): others[its] for its in kept})


def left_out(counts: Counter[str]) -> str:
    """How many images are left out, by the reason; empty if none is."""
    reasons = some(f"{count} {where}" for where, count in counts.items())
    return f"{counts.total()} images are left out: {reasons}" if reasons else ""


def _seen(name: str) -> bool:
    return name[0] != "." and name not in OTHERS


def _is_image(name: str) -> bool:
    return _ending(name) in EXTENSIONS


def _other_ending(name: str) -> str:
    return ".txt" if name.lower() in SIDE_NAMES else _ending(name)


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()

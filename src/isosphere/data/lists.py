"""Image files and their classes, as folders list them; nothing is decoded here."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from isosphere.errors import EmptyClasses, NoImages, NotFound

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
VALIDATION = ("val", "valid", "validation", "dev")  # which tests where there is no test
SIDES = {"train": "train", "training": "train", "test": "test", "testing": "test"} | dict.fromkeys(VALIDATION, "test")


class Listed(NamedTuple):
    """Files, their classes, all classes, "train" or "test" of each if there is a split, and a note on files left out.
    """

    paths: list[str]
    labels: list[str]
    classes: set[str]
    splits: list[str] | None = None
    left_out: str = ""


def class_folders(root: Path, may_be_empty: Callable[[str], bool], whole: bool = False) -> Listed:
    """Images of root/class/, or of root/train/class/ and root/test/class/ if there are just these two.

    A validation folder next to these two is left out. With `whole` it is kept, without a split.
    """
    if not root.is_dir():
        raise NotFound(root, "folder of class folders")
    names = subfolders(root)
    if not names:
        files, others, _ = _inside(root)
        instead = "a folder that holds one folder of images per class"
        instead += ", or train without classes by the recipe simclr-photos" if files else ""
        raise NoImages(root, "class folder", instead, len(files) + others.total())
    spare = spare_parts(names)
    kept = [name for name in names if name not in spare]
    sides = {SIDES.get(name.lower(), name): root / name for name in kept}
    given = len(kept) == 2 and sides.keys() == {"train", "test"} and all(map(subfolders, sides.values()))
    places = [(side, sides[side]) for side in ("train", "test")] if given else [("", root)]
    paths, labels, splits = [], [], []
    classes: set[str] = set()
    if whole and given:
        places += [("", root / name) for name in spare]
        spare = []
    unused = Counter({f"in {name}/": len(_below(root / name)[0]) for name in spare if given})
    left = unused + _stray(root) if given else Counter()
    for side, place in places:
        found, its_left = _classes(place, may_be_empty)
        for name, files in found.items():
            paths += files
            labels += [name] * len(files)
            splits += [side] * len(files)
        classes.update(found)
        left += its_left
    note = left_out(left)
    if unused.total():
        note += f"; to measure on {' or '.join(spare)} instead, move {sides['test'].name}/ out of this folder, "
        note += "or give a CSV of path,label,split"
    return Listed(paths, labels, classes, splits if given and not whole else None, note)


def flat_folder(root: Path) -> Listed:
    """Images in a folder and in all that it holds, as one class that has its name."""
    files, others, _ = _inside(root)
    folders = subfolders(root)
    for name in folders:
        its, more = _below(root / name)
        files += its
        others += more
    if not files:
        raise NoImages(root, "image", f"a folder with files that end in {ENDINGS}", others.total())
    repair = "for classes give the folder right above theirs"
    flat = f"all {len(files)} images in its folders are taken, without classes; {repair}" if folders else ""
    left = "; ".join(filter(None, (flat, left_out(_unread(others)))))
    return Listed(files, [root.name] * len(files), {root.name}, None, left)


def nested(root: Path) -> bool:
    """Whether images are deeper than in class folders, as in 2019/june/. Folders called train or test are a split."""
    hollow = [name for name in subfolders(root) if not _inside(root / name)[0] and _below(root / name)[0]]
    return bool(hollow) and not any(name.lower() in SIDES for name in hollow)


def subfolders(root: Path) -> list[str]:
    """Folders in a folder, in order of name. Hidden ones, other programs' and our runs' are left out."""
    return ordered(name for name in _inside(root)[2] if name != "runs" or not any(root.glob("runs/*/recipe.json")))


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
    rest = sorted(SIDES.get(part.lower(), "") for part in parts if part not in spare)
    return spare if rest == ["test", "train"] else []


def _classes(root: Path, may_be_empty: Callable[[str], bool]) -> tuple[dict[str, list[str]], Counter[str]]:
    """The images of each class folder, and how many images are left out, by the reason."""
    found, left, empty, deeper, unfit = {}, _stray(root), [], 0, 0
    for name in subfolders(root):
        found[name], others, inner = _inside(root / name)
        deeper += sum(len(_below(root / name / folder)[0]) for folder in inner)
        left += _unread(others)
        if not found[name] and not may_be_empty(name):
            empty.append(name)
            unfit += others.total()
    if empty:
        raise EmptyClasses(root, empty, len(found), deeper, unfit)
    return found, left + Counter({"deeper than in a class folder": deeper})


def _stray(root: Path) -> Counter[str]:
    files, others, _ = _inside(root)
    return Counter({"next to the class folders": len(files)}) + _unread(others)


def _inside(folder: Path) -> tuple[list[str], Counter[str], list[str]]:
    """Directly in a folder: images in order of name, endings of other files, names of folders."""
    others: Counter[str] = Counter()
    images, folders = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _seen(entry.name):
                continue
            if entry.is_dir():
                folders.append(entry.name)
            elif _is_image(entry.name):
                images.append(entry.path)
            else:
                others[_other_ending(entry.name)] += 1
    return sorted(images), others, folders


def _below(folder: Path) -> tuple[list[str], Counter[str]]:
    """In a folder and all folders below: images in order of name, endings of other files."""
    others: Counter[str] = Counter()
    images = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(filter(_seen, folders))
        for name in filter(_seen, sorted(files)):
            if _is_image(name):
                images.append(os.path.join(place, name))
            else:
                others[_other_ending(name)] += 1
    return images, others


def _unread(others: Counter[str]) -> Counter[str]:
    """Of other files those that may be images, by the reason."""
    kept = sorted(others.keys() - SIDE_FILES)
    return Counter({f"that end in {ending}" if ending else "without an ending": others[ending] for ending in kept})


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

"""Image files and their classes, as folders and CSVs list them; nothing is decoded here."""

import csv
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

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
LISTS = {".csv", ".tsv", ".txt", ""}  # endings of what was meant as a CSV
ALIASES = {"filename": "path", "file": "path", "image": "path", "class": "label"}


class Listed(NamedTuple):
    """Files, the class of each, all classes, "train" or "test" for each where told, and what was left out."""

    paths: list[str]
    labels: list[str]
    classes: set[str]
    splits: list[str] | None = None
    left_out: str = ""


def class_folders(root: Path, may_be_empty: Callable[[str], bool], whole: bool = False) -> Listed:
    """Images of root/class/, or of root/train/class/ and root/test/class/ where there are just these two folders.

    A validation folder beside these two is left out, unless the `whole` is wanted, without a split.
    """
    if not root.is_dir():
        raise ValueError(f"{root} is not a folder; give a folder that holds one folder of images per class")
    names = subfolders(root)
    if not names:
        told = "give a folder that holds one folder of images per class"
        told += ", or train without classes by the recipe simclr-photos" if _inside(root)[0] else ""
        raise ValueError(f"{root} holds no class folder; {told}")
    spare = _spare(names)
    kept = [name for name in names if name not in spare]
    sides = {SIDES.get(name.lower(), name): root / name for name in kept}
    given = len(kept) == 2 and sides.keys() == {"train", "test"} and all(map(subfolders, sides.values()))
    places = [(side, sides[side]) for side in ("train", "test")] if given else [("", root)]
    paths, labels, splits, classes = [], [], [], set()
    if whole and given:
        places += [("", root / name) for name in spare]
        spare = []
    unused = Counter({f"in {name}/": len(_below(root / name)[0]) for name in spare if given})
    left = unused + _beside(root) if given else Counter()
    for side, place in places:
        found, its_left = _classes(place, may_be_empty)
        for name, files in found.items():
            paths += files
            labels += [name] * len(files)
            splits += [side] * len(files)
        classes.update(found)
        left += its_left
    told = _left_out(left)
    if unused.total():
        told += f"; to measure on {' or '.join(spare)} instead, move {sides['test'].name}/ out of this folder, "
        told += "or give a CSV of path,label,split"
    return Listed(paths, labels, classes, splits if given and not whole else None, told)


def flat_folder(root: Path) -> Listed:
    """Images in a folder and in all that it holds, as one class that has its name."""
    files, others, _ = _inside(root)
    folders = subfolders(root)
    for name in folders:
        its, more = _below(root / name)
        files += its
        others += more
    if not files:
        raise ValueError(f"{root} holds no file that ends in {ENDINGS} ({others.total()} others)")
    repair = "for classes give the folder right above theirs"
    told = f"all {len(files)} images in its folders are taken, without classes; {repair}" if folders else ""
    left = "; ".join(filter(None, (told, _left_out(_unread(others)))))
    return Listed(files, [root.name] * len(files), {root.name}, None, left)


def nested(root: Path) -> bool:
    """Whether images lie deeper than in class folders, as in 2019/june/; what is called train or test is a split."""
    hollow = [name for name in subfolders(root) if not _inside(root / name)[0] and _below(root / name)[0]]
    return bool(hollow) and not any(name.lower() in SIDES for name in hollow)


def csv_rows(path: Path, labeled: bool = True, whole: bool = False) -> Listed:
    """Images that a CSV lists in the columns path,label[,split]; others are ignored.

    Unless they must be `labeled`, those of a CSV without labels are one class that has its name. Rows of validation
    beside train and test are left out, unless the `whole` is wanted, without a split.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a file; give a CSV with the columns path,label[,split]")
    if path.suffix.lower() in EXTENSIONS | UNREAD:
        raise ValueError(f"{path} is one image; give a folder of images, or a CSV with the columns path,label[,split]")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            told = [name.strip() for name in reader.fieldnames or []]
            lower = [name.lower() for name in told]
            columns = [name if ALIASES.get(name) in lower else ALIASES.get(name, name) for name in lower]
            reader.fieldnames = columns
            rows = [(reader.reader.line_num, row) for row in reader]  # the outer count stops at blank lines
    except (UnicodeDecodeError, csv.Error) as error:
        if path.suffix.lower() not in LISTS:
            told = "give a folder of images, or a CSV with the columns path,label[,split]"
            raise ValueError(f"{path} is neither a folder nor a CSV of paths and labels; {told}") from error
        raise ValueError(f"{path} is not a CSV in UTF-8 ({error}); give path,label[,split] in UTF-8") from error
    wanted = [name for name in ("path", "label", "split") if name in columns]
    needed = {"path", "label"} if labeled or "split" in wanted else {"path"}
    if not needed <= set(wanted) or any(columns.count(name) > 1 for name in wanted):
        found = repr(told[0]) if len(told) == 1 else ",".join(told) or "(none)"
        repair = "they must be path,label[,split]" + ", with commas between them" * (len(told) == 1)
        others = {meant: [name for name in ALIASES if ALIASES[name] == meant] for meant in ALIASES.values()}
        others = ", ".join(f"{' or '.join(names)} for {meant}" for meant, names in others.items())
        raise ValueError(f"{path} has the columns {found}; {repair} ({others} will do)")
    if not rows:
        raise ValueError(f"{path} lists no image")
    lines: dict[str, int] = {}  # of each file
    for line, row in rows:
        if None in row:  # which holds what is beyond the last column
            raise ValueError(f"{path}: row {line} has more cells than the columns {','.join(told)}")
        row.update({name: (row[name] or "").strip() for name in wanted})
        if not all(row[name] for name in wanted):
            raise ValueError(f"{path}: row {line} does not fill the columns {','.join(told)}")
        if row.get("split", "train").lower() not in SIDES:
            raise ValueError(f"{path}: row {line} has the split {row['split']!r}; it must be train or test")
        first = lines.setdefault(os.path.normpath(path.parent / row["path"]), line)
        if first != line:
            raise ValueError(f"{path}: rows {first} and {line} both list {row['path']}; list each file once")
    parts = Counter(row["split"].lower() for _, row in rows) if "split" in wanted else Counter()
    spare = [] if whole else _spare(list(parts))
    if not whole and len(parts) - len(spare) > len({SIDES[part] for part in parts}):
        raise ValueError(f"{path} has the splits {', '.join(parts)}; there may be one to train and one to test")
    left = ""
    if spare:
        rows = [(line, row) for line, row in rows if row["split"].lower() not in spare]
        left = _left_out(Counter({f"of the split {part}": parts[part] for part in spare}))
        left += "; to measure on these instead, leave out the rows of test"
    paths = [str(path.parent / row["path"]) for _, row in rows]
    missing = [name for name in paths if not Path(name).is_file()]
    if missing:
        told = f"{len(missing)} of {len(paths)} files are missing: {some(missing)}"
        if len(missing) == len(paths) and all("\\" in row["path"] for _, row in rows):
            raise ValueError(f"{path}: {told}; backslashes do not part folders here: write /")
        raise ValueError(f"{path}: {told}; paths begin at the folder of the CSV")
    labels = [row.get("label", path.stem) for _, row in rows]
    splits = [SIDES[row["split"].lower()] for _, row in rows] if "split" in wanted and not whole else None
    return Listed(paths, labels, set(labels), splits, left)


def subfolders(root: Path) -> list[str]:
    """The folders in a folder, in order of name, without hidden ones, those of other programs and one of our runs."""
    return ordered(name for name in _inside(root)[2] if name != "runs" or not any(root.glob("runs/*/recipe.json")))


def ordered(names: Iterable[str]) -> list[str]:
    """Names in order; in numeric order where all of them are numbers."""
    names = sorted(names)
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else names


def some(names: Iterable[str], limit: int = 10) -> str:
    """The names in one line, cut after a few."""
    names = list(names)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _spare(parts: list[str]) -> list[str]:
    """The parts called validation where one trains and one tests besides: they do neither."""
    spare = [part for part in parts if part.lower() in VALIDATION]
    rest = sorted(SIDES.get(part.lower(), "") for part in parts if part not in spare)
    return spare if rest == ["test", "train"] else []


def _classes(root: Path, may_be_empty: Callable[[str], bool]) -> tuple[dict[str, list[str]], Counter[str]]:
    """The images of each class folder, and how many images are left out, by the reason."""
    found, left, empty, deeper, unfit = {}, _beside(root), [], 0, 0
    for name in subfolders(root):
        found[name], others, inner = _inside(root / name)
        deeper += sum(len(_below(root / name / folder)[0]) for folder in inner)
        left += _unread(others)
        if not found[name] and not may_be_empty(name):
            empty.append(name)
            unfit += others.total()
    if empty:
        told = f"{len(empty)} of {len(found)} class folders of {root} hold no image: {some(empty)}"
        told += f"; {unfit} files in them do not end in {ENDINGS}" if unfit else ""
        if deeper:
            repair = "give the folder right above the class folders, or one with just a train/ and a test/ of them"
            repair += "; or tell the class of each image in a CSV with the columns path,label"
            raise ValueError(f"{told}; {deeper} images lie deeper: {repair}")
        raise ValueError(f"{told}; fill or remove them")
    return found, left + Counter({"deeper than in a class folder": deeper})


def _beside(root: Path) -> Counter[str]:
    files, others, _ = _inside(root)
    return Counter({"beside the class folders": len(files)}) + _unread(others)


def _inside(folder: Path) -> tuple[list[str], Counter[str], list[str]]:
    """Directly in a folder: its images in order of name, the endings of its other files, the names of its folders."""
    images, others, folders = [], Counter(), []
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
    """In a folder and all that are in it: the images in order of name, the endings of the other files."""
    images, others = [], Counter()
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(filter(_seen, folders))
        for name in filter(_seen, sorted(files)):
            if _is_image(name):
                images.append(os.path.join(place, name))
            else:
                others[_other_ending(name)] += 1
    return images, others


def _unread(others: Counter[str]) -> Counter[str]:
    """Of other files those that may be images for all that is known, by the reason."""
    kept = sorted(others.keys() - SIDE_FILES)
    return Counter({f"that end in {ending}" if ending else "without an ending": others[ending] for ending in kept})


def _left_out(counts: Counter[str]) -> str:
    told = some(f"{count} {where}" for where, count in counts.items())
    return f"{counts.total()} images are left out: {told}" if told else ""


def _seen(name: str) -> bool:
    return name[0] != "." and name not in OTHERS


def _is_image(name: str) -> bool:
    return _ending(name) in EXTENSIONS


def _other_ending(name: str) -> str:
    return ".txt" if name.lower() in SIDE_NAMES else _ending(name)


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()

"""MXNet's RecordIO pairs (`train.rec` next to `train.idx`) without MXNet: any record at once, memory-mapped.

A record is a magic number, a word, and bytes filled up to a multiple of four. The word has the bytes' length (29 bits)
and their part (3 bits). Part 0 is a whole record; 1, 2, 3 are the first, a middle and the last part. Writers cut a
record where the magic number occurs in it. The bytes are a header and an encoded image. The header is a flag, a label,
two ids, then `flag` more labels.

insightface's files begin with a record about the file. Its labels are the numbers of the first record after the images,
and after all. They end with a record about each identity. These have no image and are skipped, as every image carries
its label.
"""

import io
import mmap
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from isosphere.errors import BadRecord, DamagedFile, NoImages, NotFound, OtherCounts, UnreadableImage, WrongIndex

from .decoding import decode
from .images import LabeledImages, read_batch
from .transforms import View

MAGIC = struct.pack("<I", 0xCED7230A)
LENGTH = (1 << 29) - 1
CHUNK = 1 << 16  # records whose headers are read at once
HEAD = np.dtype(
    [("magic", "S4"), ("word", "<u4"), ("flag", "<u4"), ("label", "<f4"), ("ids", "<u8", 2), ("labels", "<f4", 2)]
)
HEADER = struct.Struct("<IfQQ")


class RecordFile:
    """The records of a pair by place: `keys` and `offsets`, int64 (M,), in the order of the index.

    The file is mapped on first use, in each process that it is pickled to. Forked processes share the map.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._map: mmap.mmap | None = None
        index = self.path.with_suffix(".idx")
        for file in (self.path, index):
            if not file.is_file():
                raise NotFound(file, "file of a RecordIO pair, .rec and .idx,")
            if not file.stat().st_size:
                raise DamagedFile(file, "it is empty; copy it again")
        try:
            table = np.loadtxt(index, dtype=np.int64, ndmin=2)
        except ValueError as error:
            raise DamagedFile(index, f"it is no index of records: {error}") from error
        if table.shape[1:] != (2,):
            raise DamagedFile(index, "it is no index of records: a line must hold a record's number and its place")
        self.keys, self.offsets = table.T.copy()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_map": None}

    @property
    def map(self) -> mmap.mmap:
        """The whole file, read-only; without a file position, so that processes do not disturb each other."""
        if self._map is None:
            with open(self.path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._map

    def heads(self, places: np.ndarray) -> np.ndarray:
        """The beginnings of these records, HEAD (N,). Each must be one, and end within the file."""
        offsets, size = self.offsets[places], len(self.map)
        if offsets.max() > size - 8 - HEADER.size:
            raise self._cut_off(places[offsets.argmax()])
        spans = np.clip(offsets[:, None] + np.arange(HEAD.itemsize), 0, size - 1)
        heads = np.frombuffer(self.map, np.uint8)[spans].view(HEAD)[:, 0]
        foreign = (heads["magic"] != MAGIC) | (offsets < 0)
        if foreign.any():
            raise self.damage(places[foreign.argmax()], "no record begins there; .rec and .idx disagree")
        ends = offsets + 8 + (heads["word"] & LENGTH)
        if ends.max() > size:
            raise self._cut_off(places[(ends > size).argmax()])
        return heads

    def check_covered(self, words: np.ndarray) -> None:
        """Refuse an index whose records are not the whole file. The words (M,) hold their length and part."""
        order = self.offsets.argsort(kind="stable")
        begins, words, size = self.offsets[order], words[order], len(self.map)
        ends = begins + 8 + ((words & LENGTH).astype(np.int64) + 3) // 4 * 4
        nexts = np.append(begins[1:], size)
        for row in np.flatnonzero(words >> 29):  # few come in several parts
            try:
                ends[row] = self._parts(order[row])[1]
            except BadRecord:  # a damaged one is an error when it is read
                ends[row] = nexts[row]
        ends, nexts = np.append(0, ends.clip(max=size)), np.append(begins[0], nexts)  # the last may not be filled up
        (apart,) = np.nonzero(ends != nexts)
        if len(apart):
            one, other = ends[apart[0]], nexts[apart[0]]
            begin, end = int(min(one, other)), int(max(one, other))
            raise WrongIndex(self.path.with_suffix(".idx"), len(order), begin, end, 0 if one < other else 2)

    def read(self, place: int) -> bytes:
        """The bytes of a record, its parts joined."""
        return MAGIC.join(self._parts(place)[0])

    def _parts(self, place: int) -> tuple[list[bytes], int]:
        """The parts of a record, and where the next one begins."""
        parts: list[bytes] = []
        at, last = int(self.offsets[place]), False
        while not last:
            magic, word = self.map[at : at + 4], int.from_bytes(self.map[at + 4 : at + 8], "little")
            part, length = word >> 29, word & LENGTH
            if magic != MAGIC or part not in ((2, 3) if parts else (0, 1)) or at + 8 + length > len(self.map):
                raise self.damage(place, f"its part {len(parts) + 1} is damaged or cut off")
            parts.append(self.map[at + 8 : at + 8 + length])
            at += 8 + (length + 3) // 4 * 4
            last = part in (0, 3)
        return parts, at

    def _cut_off(self, place: int) -> BadRecord:
        """The error if a record reaches beyond the file. It names the first that is not whole."""
        size, order = len(self.map), self.offsets.argsort(kind="stable")
        whole = int(np.count_nonzero(self.offsets[order[1:]] <= size))  # those that end where another may begin
        try:
            self._parts(order[whole])
            whole += 1  # this one lacks nothing but what fills it up
        except BadRecord:
            pass
        if whole == len(order):  # the file is not cut off
            return self.damage(place, "its header or its length reaches beyond the file's end; copy it again")
        reason = f"the file ends at byte {size}, cut off after {whole} of {len(order)} records; copy it again"
        return self.damage(order[whole], reason, whole)

    def damage(self, place: int, reason: str, whole: int | None = None) -> BadRecord:
        """The error for a record that cannot be read."""
        return BadRecord(self.path, int(self.keys[place]), int(self.offsets[place]), reason, whole)


class RecordSet(LabeledImages):
    """Images of a RecordIO pair with labels: `set[i]` is uint8 (3, H, W), decoded each time.

    `places` (N,) are the images' places in `file`.
    """

    paths = pixels = splits = device = None  # neither separate files nor in memory
    on_disk = True

    def __init__(self, file: RecordFile, places: Tensor, labels: Tensor, classes: Sequence[str]) -> None:
        super().__init__(labels, classes)
        self.file, self.places = file, places

    @classmethod
    def pair(cls, path: str | Path) -> "RecordSet":
        """All images of a .rec (or of `train.rec` in a folder) and its .idx. Numbers are the classes' names."""
        path = Path(path)
        file = RecordFile(path / "train.rec" if path.is_dir() else path)
        count = len(file.keys)
        numbers, pictured, words = np.empty(count, np.float32), np.empty(count, bool), np.empty(count, np.uint32)
        for start in range(0, count, CHUNK):
            part = slice(start, start + CHUNK)
            heads = file.heads(np.arange(count)[part])
            numbers[part] = np.where(heads["flag"] > 0, heads["labels"][:, 0], heads["label"])
            headers = HEADER.size + 4 * heads["flag"].astype(np.int64)
            pictured[part] = (heads["flag"] == 0) | ((heads["word"] & LENGTH) > headers)
            words[part] = heads["word"]
        about = np.flatnonzero((file.keys == 0) & ~pictured)[:1]
        begin, end = file.heads(about)["labels"][0] if len(about) else (0, 0)
        if not 1 <= begin <= end:  # no record 0 says where the identities' records begin and end
            file.check_covered(words)
        elif end != np.float32(count):  # as labels are of that precision
            index, given = file.path.with_suffix(".idx"), {"records": int(end)}
            raise OtherCounts(str(index), {"records": count}, given, repair="copy it and its .rec again")
        (places,) = np.nonzero(pictured)
        numbers = numbers[places]
        if not len(places):
            raise NoImages(file.path, "image", "a .rec of images", count)
        wrong = ~np.isfinite(numbers) | (numbers != np.round(numbers))
        if wrong.any():
            first = wrong.argmax()
            raise file.damage(places[first], f"its label {numbers[first]} is no class")
        classes, labels = np.unique(numbers.astype(np.int64), return_inverse=True)
        return cls(file, torch.from_numpy(places), torch.from_numpy(labels), [str(name) for name in classes.tolist()])

    def __getitem__(self, index: int) -> Tensor:
        return decode(io.BytesIO(self.encoded(index)), self.called(index))

    # ---- what a cache asks of files

    def encoded(self, index: int) -> bytes:
        """The bytes of an image's file, which a record holds."""
        try:
            data = self.file.read(int(self.places[index]))
            return data[HEADER.size + 4 * HEADER.unpack_from(data)[0] :]
        except (BadRecord, struct.error) as error:
            raise UnreadableImage(self.called(index), str(error)) from error

    def called(self, index: int) -> str:
        """What an error calls an image."""
        return f"{self.file.path} record {self.file.keys[int(self.places[index])]}"

    def stamps(self) -> np.ndarray:
        """Size and time of change of the one file, int64 (N, 2)."""
        stat = os.stat(self.file.path)
        return np.broadcast_to(np.array([stat.st_size, stat.st_mtime_ns]), (len(self), 2))

    def keys(self, source: Path) -> list[str]:
        """A name of each image, by which it is known again: where its record is."""
        return [f"{self.file.path.name}@{offset}" for offset in self.file.offsets[self.places.numpy()].tolist()]

    def is_there(self, key: str, source: Path) -> bool:
        """Whether the file of a name is still there; all are in one."""
        return True

    # ---- what a loop asks

    def batch(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """Images at these indices (N,) seen through the view, uint8 (N, C, S, S)."""
        return read_batch(self, indices, view, numbers)

    def subset(self, indices: Iterable[int] | Tensor) -> Self:
        """The images at these indices, in this order, relabeled as by `ImageSet.subset`. The file is shared."""
        kept, labels, classes = self.relabeled(indices)
        return self.marked(type(self)(self.file, self.places[kept], labels, classes), kept)

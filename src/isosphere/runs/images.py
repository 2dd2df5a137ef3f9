"""The test images of a run: thumbnails it kept, or the files it was tested on."""

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from isosphere.errors import DamagedFile, need
from isosphere.recipes.labels import group
from isosphere.runs.folder import PATHS, THUMBNAILS, UNREADABLE, RunFolder
from isosphere.runs.path_lists import read_paths
from isosphere.runs.places import is_inside, locate

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image


@dataclass(frozen=True)
class TestImages:
    """Image i of the test embeddings as RGB, at most so many pixels wide, and the class that its path names."""

    __test__ = False  # no test, for pytest
    run: RunFolder
    pixels: "np.ndarray | None"  # (N, 3 or 1, S, S) uint8
    lines: list[list[str]]  # a path, and perhaps its class

    def image(self, index: int, size: int) -> "Image":
        """An image; OSError where its file cannot be read."""
        images, ops = need("PIL.Image", "train", "reading images"), need("PIL.ImageOps", "train", "reading images")
        if self.pixels is not None:
            import numpy as np

            colors = np.repeat(self.pixels[index], 3 // self.pixels.shape[1], axis=0)  # gray ones have one channel
            image = images.fromarray(np.ascontiguousarray(colors.transpose(1, 2, 0)))
        else:
            data = group(self.run.values, "data")
            path = locate(self.lines[index][0], str(data.get("root") or ""), self.run.folder)
            if not is_inside(path, data, self.run.folder):  # a stranger's run must not show others' pictures
                raise PermissionError(errno.EACCES, "outside of the run's data", str(path))
            with images.open(path) as opened:
                opened.draft("RGB", (2 * size, 2 * size))
                image = ops.exif_transpose(opened).convert("RGB")
        image.thumbnail((size, size))
        return image

    def class_of(self, index: int) -> str:
        """The class after the path, else its folder; nothing of thumbnails."""
        if not self.lines:
            return ""
        path, *named = self.lines[index]
        return named[0] if named else Path(path).parent.name


def read_test_images(run: RunFolder) -> TestImages | None:
    """Thumbnails before paths; None where a run has neither. One that does not fit the embeddings is refused."""
    path = next((run.folder / name for name in (THUMBNAILS, PATHS) if (run.folder / name).is_file()), None)
    if path is None or run.embedded is None:
        return None
    count = len(run.embedded.labels)
    try:
        if path.name == PATHS:
            lines = read_paths(path)
            if len(lines) != count:
                raise ValueError(f"it has {len(lines)} lines for {count} embeddings")
            return TestImages(run, None, lines)
        import numpy as np

        with np.load(path, allow_pickle=False) as held:
            pixels = held["pixels"]
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:2] not in ((count, 1), (count, 3)):
            raise ValueError(f"pixels are {pixels.dtype} {pixels.shape}, not uint8 ({count}, 3, S, S)")
        return TestImages(run, pixels, [])
    except UNREADABLE as error:
        raise DamagedFile(path, str(error)) from error

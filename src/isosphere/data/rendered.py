"""The embedded data set: characters of many scripts, rendered from the DejaVu fonts that matplotlib has.

A class is a letter or digit. Its glyphs, one for each face that has it, are brought to one size. So O and o are one
shape. Of characters with nearly the same shape in any face, only the first is kept. An image is a glyph after random
changes: stroke, affine warp, background with clutter, blur and noise.

The seed shuffles the classes, so any part of them mixes the scripts. A larger set with the same seed begins with the
classes of a smaller one. A class has the same images in both.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageFont
from torch import Tensor

from isosphere.errors import BadArgument, need

from .images import ImageSet
from .transforms import uniforms

FACES = tuple(
    f"DejaVu{family}{style}.ttf"
    for family, slanted in (("Sans", "Oblique"), ("Serif", "Italic"), ("SansMono", "Oblique"))
    for style in ("", "-Bold", f"-{slanted}", f"-Bold{slanted}")
)
CANVAS, GLYPH = 64, 44  # pixels of a glyph's canvas, and of the glyph's longer side on it
ALIKE = 0.95  # glyphs with this cosine, seen as 16 x 16 cells, are one shape

Draw = Callable[[float, float], Tensor]  # the next random number of each image between two bounds, (N, 1, 1)


def rendered(classes: int = 200, per_class: int = 20, seed: int = 0, size: int = 32) -> ImageSet:
    """`classes` characters with `per_class` images each, uint8 (N, 1, size, size), one class after another."""
    characters, glyphs = characters_and_glyphs(classes, seed)
    labels = torch.arange(classes).repeat_interleave(per_class)
    positions = labels * 2**20 + torch.arange(per_class).repeat(classes)
    chunks = zip(labels.split(512), positions.split(512), strict=True)
    pixels = torch.cat([_images(glyphs[chosen], its, seed, size) for chosen, its in chunks])
    names = [f"U+{ord(character):04X} {unicodedata.name(character)}" for character in characters]
    return ImageSet.from_pixels(pixels, labels, names)


def characters_and_glyphs(classes: int, seed: int) -> tuple[list[str], Tensor]:
    """Characters of distinct shapes, and their glyphs, uint8 (classes, faces, CANVAS, CANVAS), zero where none is."""
    fonts, mapped = _fonts()
    common = [code for code, faces in Counter(code for codes in mapped for code in codes).items() if faces >= 4]
    candidates = torch.tensor(sorted(common))
    candidates = candidates[uniforms(seed, 0, candidates, 1)[:, 0].argsort(stable=True)]
    shapes = _shapes(_glyphs(fonts, chr(0x10FFFF)))[:, None]  # .notdef counts as seen, so that nothing like it is kept
    characters: list[str] = []
    glyphs: list[np.ndarray] = []
    for block in candidates.split(min(classes, 256)):
        drawn = [_glyphs(fonts, chr(code), [code in codes for codes in mapped]) for code in block.tolist()]
        new = torch.stack([_shapes(glyph) for glyph in drawn], 1)  # (faces, block, 256)
        alike = (new @ torch.cat([shapes, new], 1).mT).amax(0) >= ALIKE  # (block, seen + block)
        kept = list(range(shapes.shape[1]))
        for row, code in enumerate(block.tolist()):
            if len(characters) < classes and drawn[row].any() and not alike[row, kept].any():
                kept.append(shapes.shape[1] + row)
                characters.append(chr(code))
                glyphs.append(drawn[row])
        shapes = torch.cat([shapes, new], 1)[:, kept]
        if len(characters) == classes:
            return characters, torch.from_numpy(np.stack(glyphs))
    raise BadArgument("classes", classes, f"at most {len(characters)}, the distinct shapes that the fonts hold")


def _fonts() -> tuple[list[ImageFont.FreeTypeFont], list[set[int]]]:
    """The faces, and the letters and digits that each of them has."""
    what = "drawing characters with its fonts"
    matplotlib, ft2font = need("matplotlib", "train", what), need("matplotlib.ft2font", "train", what)
    paths = [str(Path(matplotlib.get_data_path(), "fonts", "ttf", face)) for face in FACES]
    # The basic layout is part of PIL; the other one depends on a library that may or may not be there.
    fonts = [ImageFont.truetype(path, CANVAS, layout_engine=ImageFont.Layout.BASIC) for path in paths]
    wanted = ("Lu", "Ll", "Lo", "Nd")
    mapped = [ft2font.FT2Font(path).get_charmap() for path in paths]
    return fonts, [{code for code in codes if unicodedata.category(chr(code)) in wanted} for codes in mapped]


def _glyphs(fonts: list[ImageFont.FreeTypeFont], character: str, has: list[bool] | None = None) -> np.ndarray:
    """The character in every face, scaled to GLYPH pixels and centered, uint8 (faces, CANVAS, CANVAS)."""
    glyphs = np.zeros((len(fonts), CANVAS, CANVAS), np.uint8)
    for face, font in enumerate(fonts):
        if has is not None and not has[face]:
            continue
        mask = font.getmask(character, mode="L")
        ink = mask.getbbox()
        if ink is None:
            continue
        image = Image.frombytes("L", mask.size, bytes(mask)).crop(ink)
        width, height = (max(1, round(side * GLYPH / max(image.size))) for side in image.size)
        top, left = (CANVAS - height) // 2, (CANVAS - width) // 2
        resized = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
        glyphs[face, top : top + height, left : left + width] = resized
    return glyphs


def _shapes(glyphs: np.ndarray) -> Tensor:
    """Unit vectors of shapes, uint8 (faces, CANVAS, CANVAS) -> (faces, 256). They are zero where there is none."""
    cells = glyphs.reshape(len(glyphs), 16, CANVAS // 16, 16, CANVAS // 16).mean((2, 4), dtype=np.float32)
    return F.normalize(torch.from_numpy(cells).flatten(1), dim=1)


def _images(glyphs: Tensor, positions: Tensor, seed: int, size: int) -> Tensor:
    """One random image of each character's glyphs (N, faces, CANVAS, CANVAS), uint8 (N, 1, size, size)."""
    numbers = iter(uniforms(seed, 1, positions, 24).T)

    def draw(low: float, high: float) -> Tensor:
        return (low + (high - low) * next(numbers))[:, None, None]

    has = glyphs.flatten(2).any(2)  # (N, faces)
    face = (has.cumsum(1) > (draw(0, 1)[:, 0] * has.sum(1, keepdim=True)).floor()).int().argmax(1)
    ink = glyphs[torch.arange(len(glyphs)), face].float() / 255
    ink = _warped(_stroked(ink, draw(-0.7, 1)), draw, size)  # (N, size, size)
    texture = uniforms(seed, 2, positions, 36).view(-1, 6, 6) - 0.5
    noise = uniforms(seed, 3, positions, size * size).view(-1, size, size) - 0.5
    image = _blurred(_scene(ink, texture, draw), draw(0, 0.45)) + draw(0, 0.18) * noise
    return (image * 255).round().clamp(0, 255).to(torch.uint8)[:, None]


def _stroked(ink: Tensor, stroke: Tensor) -> Tensor:
    """Thicker if stroke > 0, thinner if it is below, by up to a pixel of the canvas on each side."""
    thick, thin = F.max_pool2d(ink[:, None], 3, 1, 1)[:, 0], -F.max_pool2d(-ink[:, None], 3, 1, 1)[:, 0]
    return ink.lerp(torch.where(stroke > 0, thick, thin), stroke.abs())


def _warped(ink: Tensor, draw: Draw, size: int) -> Tensor:
    """A random rotation, shear, scale and shift, (N, CANVAS, CANVAS) -> (N, size, size)."""
    angle, shear, shrink, squeeze = draw(-0.28, 0.28), draw(-0.28, 0.28), draw(0.8, 1.17), draw(0.86, 1.16)
    cos, sin = angle.cos() * shrink, angle.sin() * shrink
    x = torch.cat([cos * squeeze, (shear * cos - sin) * squeeze, draw(-0.14, 0.14)], 2)
    y = torch.cat([sin / squeeze, (shear * sin + cos) / squeeze, draw(-0.14, 0.14)], 2)
    grid = F.affine_grid(torch.cat([x, y], 1), [len(ink), 1, 2 * size, 2 * size], align_corners=False)
    return F.avg_pool2d(F.grid_sample(ink[:, None], grid, align_corners=False), 2)[:, 0]


def _scene(ink: Tensor, texture: Tensor, draw: Draw) -> Tensor:
    """Light ink on dark ground or the reverse, over a gradient and a texture, crossed by straight strokes."""
    size = ink.shape[-1]
    place = (torch.arange(size) + 0.5) / size * 2 - 1
    x, y = place[None, None, :], place[None, :, None]
    level, contrast = draw(0.35, 0.65), draw(0.38, 0.78) * torch.where(draw(0, 1) < 0.5, -1, 1)
    rough = F.interpolate(texture[:, None], (size, size), mode="bicubic", align_corners=False)[:, 0]
    image = level + contrast * (ink - 0.5) + draw(-0.15, 0.15) * x + draw(-0.15, 0.15) * y + draw(0, 0.3) * rough
    for _ in range(2):
        turn, offset, width, shade = draw(0, math.pi), draw(-1.8, 1.8), draw(0.02, 0.065), level + draw(-0.4, 0.4)
        distance = (turn.cos() * x + turn.sin() * y - offset).abs()
        image = image.lerp(shade.expand_as(image), ((width - distance) * size / 2 + 0.5).clamp(0, 1))
    return image


def _blurred(image: Tensor, amount: Tensor) -> Tensor:
    """Each pixel mixed with its neighbors, first along rows and then along columns, (N, H, W)."""
    for _ in range(2):
        wide = F.pad(image, (1, 1), mode="replicate")
        image = image.lerp((wide[..., :-2] + wide[..., 2:]) / 2, amount).mT
    return image

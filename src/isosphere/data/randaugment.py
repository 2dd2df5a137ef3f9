"""RandAugment, a batch at once: each image has operations of its own, with the formulas of torchvision for uint8.

All images go through every formula. The parameters of those that were not drawn change nothing. So a batch on a GPU
never waits for the host.
"""

import torch
from torch import Tensor

from .colors import to_gray

OPERATIONS = ("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
              "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize")  # fmt: skip
ROUNDS = 2  # operations on each image, one after the other
DRAWS = 2 * ROUNDS
BINS = 30  # the largest magnitude
SHEAR, SHIFT, ANGLE, BLEND, BITS = 0.3, 150 / 331, 30.0, 0.9, 4  # what it stands for
BLUR = 1 / 13, 5 / 13  # of a pixel's neighbors and of itself


def rand_augment(images: Tensor, numbers: Tensor, magnitude: int) -> Tensor:
    """Two operations on each image, uint8 (N, 3, H, W) with numbers (N, DRAWS) -> the same, at a magnitude of 0..30."""
    for part in numbers.split(2, dim=1):
        operations = (part[:, 0].double() * len(OPERATIONS)).long()
        images = augment(images, operations, torch.where(part[:, 1] <= 0.5, -1.0, 1.0) * (magnitude / BINS))
    return images


def augment(images: Tensor, operations: Tensor, strength: Tensor) -> Tensor:
    """The operation of each image (N,), as its place in OPERATIONS, at a strength (N,) of -1 to 1."""
    drawn = {name: operations == place for place, name in enumerate(OPERATIONS)}
    images = _moved(images, _matrices(drawn, strength.double(), *images.shape[2:]))
    images = _blended(images, drawn, strength.float())
    return _mapped(images, drawn, strength.abs().double())


# ---------------------------------------------------------------- shear, translation, rotation


def _matrices(drawn: dict[str, Tensor], strength: Tensor, height: int, width: int) -> Tensor:
    """Where each pixel of the result comes from, (N, 2, 3), for places (x, y, 1) from the image's center."""

    def of(name: str, value: Tensor, neutral: float = 0.0) -> Tensor:
        return torch.where(drawn[name], value, neutral)

    turn = of("Rotate", torch.deg2rad(strength * ANGLE))
    right, down = of("ShearX", strength * SHEAR), of("ShearY", strength * SHEAR)
    left = of("TranslateX", -(strength * SHIFT * width).trunc()) + right * (height / 2)
    up = of("TranslateY", -(strength * SHIFT * height).trunc()) + down * (width / 2)
    first, second = (turn.cos(), right - turn.sin(), left), (down + turn.sin(), turn.cos(), up)
    return torch.stack([torch.stack(first, 1), torch.stack(second, 1)], 1)


def _moved(images: Tensor, matrices: Tensor) -> Tensor:
    """The pixel nearest to where each comes from; outside of the image it is black."""
    count, _, height, width = images.shape
    y, x = (torch.arange(side, device=images.device, dtype=torch.float64) - (side - 1) / 2 for side in (height, width))
    columns, rows = (
        row[:, 0, None, None] * x + row[:, 1, None, None] * y[:, None] + row[:, 2, None, None] + (side - 1) / 2
        for row, side in zip(matrices.unbind(1), (width, height), strict=True)
    )  # (N, H, W) each
    columns, rows = columns.round().long(), rows.round().long()
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    places = (rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)).flatten(1)  # (N, H W)
    found = images.flatten(2).gather(2, places[:, None].expand(-1, images.shape[1], -1))
    return torch.where(inside.view(count, 1, height, width), found.view_as(images), 0)


# ---------------------------------------------------------------- brightness, color, contrast, sharpness


def _blended(images: Tensor, drawn: dict[str, Tensor], strength: Tensor) -> Tensor:
    """The image away from, or towards, black, its gray, its mean gray or its blur."""
    pixels = images.float()
    gray = to_gray(pixels).floor()
    other = torch.zeros_like(pixels)
    blurred = _blurred(pixels)
    for name, values in (("Color", gray), ("Contrast", gray.mean((1, 2, 3), keepdim=True)), ("Sharpness", blurred)):
        other = torch.where(_wide(drawn[name]), values, other)
    blends = drawn["Brightness"] | drawn["Color"] | drawn["Contrast"] | drawn["Sharpness"]
    factor = _wide(torch.where(blends, 1 + strength * BLEND, 1.0))
    return (pixels * factor + other * (1 - factor)).clamp(0, 255).to(torch.uint8)


def _blurred(pixels: Tensor) -> Tensor:
    """Each pixel with its eight neighbors, rounded; those of the rim stay."""
    if min(pixels.shape[2:]) <= 2:
        return pixels
    near, own = BLUR
    rows = pixels[:, :, :-2] + pixels[:, :, 1:-1] + pixels[:, :, 2:]
    sums = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]  # (N, C, H - 2, W - 2), all nine
    blurred = pixels.clone()
    blurred[:, :, 1:-1, 1:-1] = (sums * near + pixels[:, :, 1:-1, 1:-1] * (own - near)).round()
    return blurred


# ---------------------------------------------------------------- posterize, solarize, contrast and equal shares


def _mapped(images: Tensor, drawn: dict[str, Tensor], magnitude: Tensor) -> Tensor:
    """Each gray level to another one."""
    bits = torch.where(drawn["Posterize"], (8 - magnitude * BITS).round(), 8.0).long()
    images = images & _wide(256 - 2 ** (8 - bits)).to(torch.uint8)
    threshold = torch.where(drawn["Solarize"], 255 * (1 - magnitude), 256.0)
    images = torch.where(images >= _wide(threshold), 255 - images, images)
    low, high = (edge(images, (2, 3), keepdim=True).float() for edge in (torch.amin, torch.amax))
    flat = high == low
    stretched = (images - torch.where(flat, 0, low)) / torch.where(flat, 1, (high - low) * (1 / 255))
    images = torch.where(_wide(drawn["AutoContrast"]), stretched.clamp(0, 255).to(torch.uint8), images)
    return torch.where(_wide(drawn["Equalize"]), _equalized(images), images)


def _equalized(images: Tensor) -> Tensor:
    """Gray levels that are used about equally often, by PIL's rule, for each channel."""
    count = images.shape[0] * images.shape[1]
    levels = images.reshape(count, -1).long()  # (N C, H W)
    bins = (levels + 256 * torch.arange(count, device=images.device)[:, None]).flatten()
    # index_add_ on whole numbers is the same in any order, and on a GPU it is one that repeats where that is asked for.
    shares = torch.zeros(256 * count, dtype=torch.long, device=images.device)
    shares = shares.index_add_(0, bins, torch.ones_like(bins)).view(count, 256)
    sums = shares.cumsum(1)
    last = shares.gather(1, sums.argmax(1, keepdim=True))
    step = (levels.shape[1] - last) // 255
    table = ((sums - shares + step // 2) // step.clamp(min=1)).clamp(0, 255)  # of the levels below each
    found = torch.where(step > 0, table.gather(1, levels), levels)
    return found.to(torch.uint8).view_as(images)


def _wide(values: Tensor) -> Tensor:
    """Values (N,) as (N, 1, 1, 1)."""
    return values[:, None, None, None]

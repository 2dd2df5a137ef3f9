"""Colors of float images of 0..255, a batch at once: brightness, contrast, saturation and hue, each image its own.

Only tensors decide what is done. So a batch on a GPU is one graph that never waits for the host.
"""

import torch
from torch import Tensor

BRIGHTNESS, CONTRAST = 0, 1  # places of the changes; saturation is 2 and hue 3
LUMA = (0.2989, 0.587, 0.114)  # torchvision's weights of red, green and blue in gray

Limits = tuple[float, float, float, float]


def jitter_factors(numbers: Tensor, limits: Limits) -> Tensor:
    """Random numbers (N, 4) as factors of brightness, contrast and saturation, and as a part of the circle of hues."""
    parts = zip(numbers.unbind(1), limits, (1, 1, 1, 0), strict=True)  # hue is added, the others multiply
    return torch.stack([neutral + (2 * number - 1) * by for number, by, neutral in parts], dim=1)


def jitter_colors(images: Tensor, keys: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast, saturation and hue changed by factors (N, 4), in the order of the image's keys.

    Images are float (N, C, H, W) of 0..255, keys are (N, 4). A factor of 1 is neutral, for hue 0. All images go
    together through three blends, the hue and three blends. Half of these are neutral: a blend whose key is above the
    hue's waits for the second half. So hue, which costs most, is computed once.
    """
    hue_key, turns = keys[:, 3:], factors[:, 3:, None, None]
    keys, order = keys[:, :3].sort(dim=1, stable=True)
    factors, early = factors.gather(1, order), keys < hue_key
    for chosen in (early, ~early):
        active = torch.where(chosen, factors, 1)
        for place in range(3):
            images = _blended(images, order[:, place, None, None, None], active[:, place, None, None, None])
        if chosen is early:
            images = turn_hue(images, turns)
    return images


def _blended(images: Tensor, change: Tensor, factor: Tensor) -> Tensor:
    """factor * image + (1 - factor) * black for brightness, the image's mean gray for contrast, gray for saturation."""
    gray = to_gray(images)
    other = torch.where(change == CONTRAST, gray.mean((1, 2, 3), keepdim=True), gray)
    return torch.lerp(torch.where(change == BRIGHTNESS, 0, other), images, factor).clamp(0, 255)


def to_gray(images: Tensor) -> Tensor:
    """The gray of float RGB images, (N, 3, H, W) -> (N, 1, H, W). Gray ones stay as they are."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return (LUMA[0] * red).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def turn_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Float RGB images with their hue moved by a part of the circle, (N, 3, H, W) with turns (N, 1, 1, 1).

    It works in the hexagon of HSV, where the hue runs from 0 to 6. Value and chroma stay. Each channel is above the
    least one by chroma times a trapezium of the hue.
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    value, least = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    chroma = value - least
    inverse = 1 / torch.where(chroma > 0, chroma, 1)
    of_red, of_green, of_blue = (green - blue) * inverse, (blue - red) * inverse + 2, (red - green) * inverse + 4
    hue = torch.where(value == red, of_red, torch.where(value == green, of_green, of_blue))
    hue = (hue + 6 * turns) % 6
    shares = torch.cat([(hue - 3).abs() - 1, 2 - (hue - 2).abs(), 2 - (hue - 4).abs()], dim=1)
    return torch.addcmul(least, chroma, shares.clamp(0, 1))

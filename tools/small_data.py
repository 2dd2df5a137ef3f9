"""The small images on which `compare.py` trains, drawn from seeds."""

import pickle
from pathlib import Path

import numpy as np
from PIL import Image


def make_data(root: Path) -> None:
    """Photographs by class, birds in a benchmark's layout, faces with pairs and probes, and CIFAR's files."""
    for kind in range(12):
        for number in range(6):
            draw(root / "photos" / f"class_{kind}" / f"{number}.png", kind, number)
    kinds = (*range(1, 9), *range(101, 109))  # the first hundred classes train
    birds = [(kind, f"{kind:03d}.Bird_{kind}/{number}.png") for kind in kinds for number in range(5)]
    for number, (kind, name) in enumerate(birds):
        draw(root / "birds" / "images" / name, kind, number)
    for name, column in (("images.txt", 1), ("image_class_labels.txt", 0)):
        lines = [f"{number} {bird[column]}\n" for number, bird in enumerate(birds, start=1)]
        (root / "birds" / name).write_text("".join(lines))
    for place, people in {"people": range(8), "probes": range(20, 26), "others": range(30, 36)}.items():
        for kind in people:
            for number in range(3):
                draw(root / place / f"Person_{kind}" / f"{number}.png", 300 + kind, number)
    rows = []
    for kind in range(40, 50):
        for number in range(2):
            draw(root / "pairs" / f"P{kind}" / f"{number}.png", 300 + kind, number)
        rows += [f"P{kind}/0.png P{kind}/1.png 1", f"P{kind}/0.png P{40 + (kind + 1) % 10}/1.png 0"]
    (root / "pairs" / "mine_pair.txt").write_text("\n".join(rows) + "\n")
    folder, generator = root / "cifar-10-batches-py", np.random.default_rng(0)
    folder.mkdir()
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {n}" for n in range(10)]}, 4))
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        labels = generator.permutation(20) % 10
        pixels = generator.integers(0, 128, (20, 3072)) + 12 * labels[:, None]
        (folder / name).write_bytes(pickle.dumps({"data": pixels.astype(np.uint8), "labels": labels.tolist()}, 4))


def draw(path: Path, kind: int, number: int) -> None:
    """A class's own pattern of 5 x 5 colors, lit and disturbed differently in every image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pattern = np.random.default_rng(kind).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    noise = np.random.default_rng((kind, number))
    pixels = np.asarray(Image.fromarray(pattern).resize((36, 30), Image.Resampling.BICUBIC)).astype(float)
    pixels = pixels * noise.uniform(0.6, 1) + noise.normal(0, 100, pixels.shape)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)

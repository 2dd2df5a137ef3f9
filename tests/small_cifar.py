"""CIFAR-10's python files with a few images."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np


def write_cifar10(root: Path, train: int, test: int, draw: Callable[[np.ndarray, np.random.Generator], np.ndarray]):
    """`draw` gives images (N, 3, 32, 32) of these labels (N,), of which every class has as many."""
    folder, generator = root / "cifar-10-batches-py", np.random.default_rng(0)
    folder.mkdir()
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {n}" for n in range(10)]}, 4))
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        labels = generator.permutation(np.arange(test if name == "test_batch" else train // 5) % 10)
        rows = draw(labels, generator).astype(np.uint8).reshape(len(labels), -1)
        (folder / name).write_bytes(pickle.dumps({"data": rows, "labels": labels.tolist()}, 4))

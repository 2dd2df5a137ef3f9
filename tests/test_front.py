"""The front door from Python: parts of the user's own go in, and a run comes out that embeds, measures and resumes."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import isosphere
from isosphere.errors import NeedsObject
from isosphere.inference import read_checkpoint

SMALL = {"loop": {"steps": 12, "eval_every": 6, "save_every": 4, "log_every": 1, "workers": 0}, "device": "cpu",
         "batches": {"size": 12, "per_class": 3}, "optimizer": {"lr": 1e-2}}  # fmt: skip


class Points(Dataset):
    """Float images of 8 classes, jittered anew each time by three libraries' random numbers."""

    def __init__(self, jitter: float = 0.1) -> None:
        self.centers = torch.randn(8, 1, 5, 5, generator=torch.Generator().manual_seed(0))
        self.jitter = jitter

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = torch.randn(1, 5, 5) + np.random.rand() + random.random()
        return self.centers[index % 8] + self.jitter * noise, index % 8


class Net(nn.Module):
    """Gives (N, 6)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(25, 16), nn.Tanh(), nn.Linear(16, 6))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def spread(embeddings: Tensor, weight: float = 0.1) -> Tensor:
    """A constraint."""
    return weight * isosphere.sphere.norms(embeddings).log().var()


def mean_cosine(embeddings: Tensor, labels: Tensor) -> dict[str, float]:
    """A metric."""
    return {"mean_cosine": float((isosphere.sphere.directions(embeddings).mean(0) ** 2).sum())}


def all_of_it(folder: Path, **changes) -> "isosphere.front.TrainedRun":
    """A run in which every part is of the user's own: the test of the front door."""
    torch.manual_seed(1)
    multi = isosphere.MultiSimilarityLoss()
    parts = {
        "data": Points(), "model": Net(), "loss": lambda f, y: multi(f, y) + 0 * f.sum(), "constraint": spread,
        "evaluate": mean_cosine, "folder": folder,
    }  # fmt: skip
    return isosphere.fit("photos", **parts | SMALL | changes)


def weights(folder: Path) -> dict[str, Tensor]:
    return read_checkpoint(folder / "checkpoint.pt")["model"]


def test_any_module_dataset_function_and_constraint_train_and_go_on_after_a_kill(tmp_path):
    seen = []
    run = all_of_it(tmp_path / "whole", callbacks=lambda step, values: seen.append((step, values)))
    assert {"recall@1", "map@r", "mean_cosine", "norm_mean"} <= run.metrics.keys()
    assert run.evaluate() == pytest.approx(run.metrics, rel=0.3), "its dataset is random, its metrics nearly are not"
    assert [step for step, values in seen if "train/loss" in values] == list(range(1, 13))
    assert isinstance(run.model.backbone, Net) and run.folder == tmp_path / "whole"
    images = torch.stack([Points()[index][0] for index in range(5)])
    assert torch.equal(run.embed(images), run.model(images))
    torch.testing.assert_close(run.encode(images).norm(dim=1), torch.ones(5))
    torch.testing.assert_close(run.encode(images, normalize=False), run.embed(images))

    def killed(step: int, values: dict[str, float]) -> None:
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        all_of_it(tmp_path / "broken", callbacks=killed)
    resumed = all_of_it(tmp_path / "broken", resume=True)
    assert resumed.metrics.keys() == run.metrics.keys()
    found, wanted = weights(tmp_path / "broken"), weights(tmp_path / "whole")
    assert all(torch.equal(found[name], wanted[name]) for name in wanted), "random transforms are repeated, too"
    with pytest.raises(NeedsObject) as caught:
        isosphere.load_run(tmp_path / "whole")
    assert caught.value.part == "model"
    again = isosphere.load_run(tmp_path / "whole", "cpu", model=Net())
    assert torch.equal(again.embed(images), run.embed(images))

"""The run folder holds JSON whatever was measured."""

import json

import pytest
import torch

from isosphere.inference import ImageEmbedder
from isosphere.train import loop
from tiny import tiny_recipe


def strictly(text):
    """JSON without the NaN and Infinity that Python alone reads."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_an_exam_of_embeddings_that_are_all_zero_is_json(tmp_path, monkeypatch):
    """They have no coefficient of variation."""
    monkeypatch.setattr(ImageEmbedder, "__call__", lambda its, images, view, forward=None: torch.zeros(len(images), 16))
    loop.fit(tiny_recipe("rendered", {"loop.steps": 1}), tmp_path / "run", "cpu")
    lines = [strictly(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    _, last = [line for line in lines if line["kind"] == "test"]
    assert "recall@1" in last and last["norm_mean"] == 0 and "norm_cv" not in last
    assert strictly((tmp_path / "run" / "result.json").read_text())["oracle"]["norm_mean"] == 0

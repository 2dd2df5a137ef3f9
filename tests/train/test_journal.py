"""The run folder holds JSON whatever was measured, and loggers get the numbers that it holds."""

import json

import pytest
import torch

from isosphere.inference import ImageEmbedder
from isosphere.train import loop
from isosphere.train.journal import Journal
from isosphere.train.loggers import TensorBoard
from tiny import tiny_recipe


def strictly(text):
    """JSON without the NaN and Infinity that Python alone reads."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_an_evaluation_of_embeddings_that_are_all_zero_is_json(tmp_path, monkeypatch):
    """They have no coefficient of variation."""
    monkeypatch.setattr(ImageEmbedder, "__call__", lambda its, images, view, forward=None: torch.zeros(len(images), 16))
    loop.fit(tiny_recipe("rendered", {"loop.steps": 1}), tmp_path / "run", "cpu")
    lines = [strictly(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    _, last = [line for line in lines if line["kind"] == "test"]
    assert "recall@1" in last and last["norm_mean"] == 0 and "norm_cv" not in last
    assert strictly((tmp_path / "run" / "result.json").read_text())["oracle"]["norm_mean"] == 0


class WithText:
    """A logger that takes warnings, too."""

    def __init__(self):
        self.values, self.warnings = [], []

    def __call__(self, step, values):
        self.values.append((step, values))

    def warning(self, step, name, words):
        self.warnings.append((step, name, words))


@pytest.mark.parametrize("active", [True, False])
def test_loggers_get_what_the_first_rank_writes(active, tmp_path):
    recipe, values, full = tiny_recipe(), [], WithText()
    with Journal(tmp_path / "run", recipe, recipe.loop, torch.device("cpu"), None, active) as journal:
        journal.loggers += [lambda step, found: values.append((step, found)), full]
        journal.write(3, "train", {"loss": 0.5, "lr": 0.1})
        journal.warning(3, "spreading", "norms spread")
    wanted = [(3, {"train/loss": 0.5, "train/lr": 0.1})] if active else []
    assert values == full.values == wanted
    assert full.warnings == ([(3, "spreading", "norms spread")] if active else [])
    assert (tmp_path / "run").exists() == active


def test_tensorboard_has_scalars_and_texts_and_takes_back_what_comes_again(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = TensorBoard(tmp_path)
    for step in (1, 2, 3):
        first(step, {"train/loss": float(step)})
    first.warning(2, "spreading", "norms spread")
    first.close()
    again = TensorBoard(tmp_path, resumed_at=3)  # steps from this one on are purged
    again(3, {"train/loss": 30.0, "train/lr": 0.5})
    again.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 1.0), (2, 2.0), (3, 30.0)]
    assert [event.value for event in events.Scalars("train/lr")] == [0.5]
    (text,) = events.Tensors("warning/spreading/text_summary")
    assert text.step == 2 and text.tensor_proto.string_val == [b"norms spread"]

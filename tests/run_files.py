"""Small run folders and files of results, written as the loop and `isosphere reproduce` write them."""

import json

import numpy as np
import pytest

from isosphere.paper import find
from isosphere.recipes import options


def recipe_of(name="cub200-triplet", **changes):
    """A recipe as JSON holds it; `constraint_eta=0.5` changes constraint.eta."""
    changed = {key.replace("_", ".", 1): str(value) for key, value in changes.items()}
    return json.loads(json.dumps(options.to_dict(find(name, changed))))


@pytest.fixture
def recipe_dict():
    return recipe_of


@pytest.fixture
def make_run(tmp_path):
    """Writes a finished run folder: 6 classes of 4 test images in 8-space, 50 training images, three snapshots."""

    def make(name="run", recipe="cub200-triplet", seed=0, classes=(), **changes):
        folder, rng = tmp_path / name, np.random.default_rng(seed)
        (folder / "snapshots").mkdir(parents=True)
        held = recipe_of(recipe, **{"loop_snapshot_every": 1000, **changes})
        (folder / "recipe.json").write_text(json.dumps(held))
        lines = []
        for step in (0, 10, 20):
            metrics = {"recall@1": 0.3 + step / 100, "map@r": 0.1 + step / 200, "nmi": 0.5, "f1": 0.2, "norm_mean": 9.0}
            lines.append({"step": step, "kind": "test", **metrics})
            lines.append(
                {"step": step + 5, "kind": "train", "norm_mean": 8.0 + step, "norm_variance": 0.5}
                | {"loss": 1.0, "metric": 0.9}
            )
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / "result.json").write_text(json.dumps({"recipe": held, "last": metrics}))
        labels = np.repeat(np.arange(6), 4)
        embeddings = rng.normal(size=(6, 8))[labels] + rng.normal(size=(24, 8))
        scale = np.abs(embeddings).max()
        halves = (embeddings / scale).astype(np.float16)
        arrays = {"embeddings": halves, "scale": scale, "labels": labels}
        arrays |= {"classes": np.array(classes)} if classes else {}
        np.savez_compressed(folder / "test_embeddings.npz", **arrays)
        for number, step in enumerate((0, 1000, 2000)):
            arrays = {"indices": np.arange(50), "norms": rng.gamma(20.0, 0.4, 50).astype(np.float32)}
            if number:
                arrays["angles"] = rng.gamma(5.0, 4.0, 50).astype(np.float32)
            np.savez_compressed(folder / "snapshots" / f"step-{step:07d}.npz", **arrays)
        return folder

    return make


@pytest.fixture
def make_results(tmp_path):
    """Writes a file of results; a record is (cell, method, recipe as JSON, last)."""

    def make(runs=(), trials=(), name="table.json"):
        def held(records):
            return [{"cell": c, "method": a, "recipe": r, "last": last, "norms": []} for c, a, r, last in records]

        path = tmp_path / name
        path.write_text(json.dumps({"trials": held(trials), "runs": held(runs)}))
        return path

    return make

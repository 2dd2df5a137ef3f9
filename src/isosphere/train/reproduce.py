"""Many runs in one process: data and compilation are paid once, finished runs are skipped, broken ones resumed."""

import json
from pathlib import Path
from typing import Any

from isosphere.recipes import schema
from isosphere.train import distributed, state
from isosphere.train.loop import Run, prepare, train


def run_many(recipes: dict[Path, schema.Recipe], device: str = "auto") -> dict[Path, dict[str, Any]]:
    """Train each recipe into its folder; returns what each result.json holds."""
    chosen = distributed.pick_device(device)
    results, before = {}, None
    for folder, recipe in recipes.items():
        if (folder / "result.json").is_file():
            results[folder] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            continue
        resume = (folder / state.CHECKPOINT).is_file()
        run: Run = prepare(recipe, chosen, before)
        if resume:
            state.restore(run, state.load(folder / state.CHECKPOINT, recipe))
        results[folder] = train(run, folder, resume)
        before = run
    return results

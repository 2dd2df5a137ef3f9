"""The model card: what the model is, how to use it, and what its last evaluation measured."""

from collections.abc import Mapping

from isosphere.inference import Trained
from isosphere.metrics import registry
from isosphere.recipes import labels, options

CARD = "README.md"
TEXT = """\
---
library_name: isosphere
pipeline_tag: image-feature-extraction
tags: [isosphere, embeddings, image-retrieval, metric-learning]
---

# {name}

Embeds images as {dim} numbers. Similar images have a high cosine.

| | |
|---|---|
{rows}

## Use

```
pip install 'isosphere[train]'
```

```python
import isosphere
from huggingface_hub import snapshot_download

model = isosphere.load(snapshot_download("USER/NAME"))     # or a local folder
unit = model.encode(["a.jpg", "b.jpg"])                    # unit vectors, (2, {dim})
cosines = unit @ unit.T
```

## Evaluation

{evaluation}

## Before you publish

Say here which images it was trained on, who may use it and for what, and add a `license` above.
"""


def card(trained: Trained, name: str, metrics: Mapping[str, float]) -> str:
    """The text of the card, in Markdown with the fields that the Hugging Face hub reads."""
    recipe, values = trained.recipe, options.to_dict(trained.recipe)
    data, model = recipe.data, recipe.model
    weights = sum(parameter.numel() for parameter in trained.model.parameters())
    end = f"stopped at {trained.stopped:,} of" if trained.stopped is not None else ""
    shape = "as its own transforms make them" if data.transformed else "{} x {} pixels".format(*data.sides)
    rows = {
        "network": f"{model.backbone} with head {model.head}, {weights:,} weights",
        "images": shape + (", of faces" if data.framed else ""),
        "trained on": labels.dataset(values) if data.name else "own images",
        "loss": labels.loss(values),
        "constraint": labels.constraint(values),
        "length": f"{end} {recipe.loop.steps:,} {recipe.loop.unit}".strip(),
    }
    return TEXT.format(
        name=labels.drawable(name),
        dim=trained.model.dim,
        rows="\n".join(f"| {key} | {value} |" for key, value in rows.items()),
        evaluation=evaluation(metrics),
    )


def evaluation(metrics: Mapping[str, float]) -> str:
    """The main metrics as a table."""
    shown = registry.main(metrics)
    if not shown:
        return "None is recorded."
    lines = [f"| {one.label} | {one.shown(metrics[one.key])} |" for one in shown]
    return "\n".join(["Measured on the test images of the run:", "", "| metric | value |", "|---|---|", *lines])

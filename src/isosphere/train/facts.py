"""What is known of somebody's images, weights and device, for the rules that choose a recipe."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from isosphere import distributed
from isosphere.data.decoding import shape_of
from isosphere.data.images import ImageSet, open_images
from isosphere.data.workers import cores
from isosphere.errors import TooFewClasses
from isosphere.inference import naming
from isosphere.models import expects
from isosphere.models.expected import named_like
from isosphere.models.hub import is_at_hand
from isosphere.recipes import options, rules, schema

SAMPLE = 200  # images whose shapes are read


def by_rule(root: str, changes: Mapping[str, Any], device: str = "auto") -> rules.Chosen:
    """The recipe by rule for the images in a place, with fields changed; what is changed is a fact for the rules."""
    changes, plain = dict(changes), schema.Folder(root=root)
    facts = gathered(root, changes, device)
    recipe = options.override(rules.choose(facts, plain).recipe, {"data.root": root} | changes)
    return rules.Chosen(recipe, rules.explained(facts, recipe, changes))


def gathered(root: str, changes: Mapping[str, Any], device: str = "auto") -> rules.Facts:
    """The facts about images, weights and device, and what of the recipe is settled."""
    loose = {name: changes[name] for name in ("data.size", "batches.size") if name in changes}  # others must fit them
    fitting = {"data.shorter": 10**6, "batches.per_class": 1}
    first = schema.Recipe(data=schema.Folder(root=root))
    sizes = options.override(first, loose | fitting)
    asked = options.override(first, {name: its for name, its in changes.items() if name not in (*loose, *fitting)})
    data = asked.data if isinstance(asked.data, schema.Folder) else first.data
    assert isinstance(data, schema.Folder) and isinstance(sizes.batches, schema.Batches)
    images = open_images(data.root, naming=naming(data))
    if len(images.classes) < 2:
        raise TooFewClasses(data.root, "train and test", len(images.classes), 2)
    gpu = distributed.find_device(device).type == "cuda"
    model = asked.model if isinstance(asked.model, schema.Model) else schema.Model()
    backbone, weights = at_hand(model, gpu, named="model.backbone" in changes)
    expected = expects(backbone) if weights else None
    height, width = median_shape(images)
    return rules.Facts(
        images=len(images), classes=len(images.classes),
        per_class=int(torch.bincount(images.labels).float().median()),
        height=height, width=width, gpu=gpu, cores=cores(), **split_facts(images),
        backbone=backbone, weights=weights,
        features=expected.features if expected else 0, side=expected.size or 0 if expected else 0,
        asked_size=sizes.data.sides if "data.size" in loose else None,
        asked_batch=sizes.batches.size if "batches.size" in loose and "batches.per_class" not in changes else 0,
        asked_steps=asked.loop.steps if "loop.steps" in changes else 0,
    )  # fmt: skip


def at_hand(model: schema.Model, gpu: bool, named: bool) -> tuple[str, str]:
    """Backbone and weights: a file or timm's hub. Without any weights none."""
    if model.weights:
        return (model.backbone if named else named_like(model.weights) or model.backbone), model.weights
    backbone = model.backbone if named else rules.NETWORKS[gpu]
    return (backbone, rules.HUB) if is_at_hand(backbone) else (backbone if named else "", "")


def median_shape(images: ImageSet) -> tuple[int, int]:
    """Height and width of the median image of a sample, by their headers."""
    some = torch.linspace(0, len(images) - 1, min(len(images), SAMPLE)).long().unique().tolist()
    shapes = [shape for index in some if (shape := shape_of(images.files[index]))]
    if not shapes:
        return 224, 224  # none can be read, which is told where they are decoded
    height, width = np.median(np.array(shapes), axis=0).astype(int).tolist()
    return height, width


def split_facts(images: ImageSet) -> dict[str, Any]:
    """What a given split says."""
    if images.tested is None:
        return {}
    trains = ~images.tested if images.validates is None else ~images.tested & ~images.validates
    train, test = (set(images.labels[rows].tolist()) for rows in (trains, images.tested))
    shared = bool(train & test)
    return {"trained": (int(trains.sum()), len(train)), "shared": shared, "validation": images.validates is not None}

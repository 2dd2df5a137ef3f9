"""Fields that do not go together are named together, with what would; all recipes of ours go."""

import pytest

from isosphere.errors import Incompatible
from isosphere.paper import ALL
from isosphere.recipes import find, override
from isosphere.recipes.compatible import check, conflicts

SHUFFLED = {"batches": "Shuffled", "batches.size": "24"}


def test_every_recipe_of_ours_goes_together():
    for name, recipe in ALL.items():
        # Weights are given later.
        errors = [error for error in conflicts(recipe) if error.fields[0] != "model.freeze_bn"]
        assert not errors, f"{name}: {errors}"


@pytest.mark.parametrize(
    ("name", "changes", "fields"),
    [
        ("rendered", {"loss": "NTXent"}, ("loss", "batches.per_class")),
        ("rendered", {"loss": "NTXent", "batches.views": "3"} | SHUFFLED, ("loss", "batches", "data")),
        ("rendered", {"batches.size": "4", "batches.per_class": "4"}, ("loss", "batches.size")),
        ("rendered", {"batches": "Shuffled", "batches.size": "1"}, ("loss", "batches.size")),
        ("rendered", {"loss": "ArcFace", "batches.memory": "64"}, ("loss", "batches.memory")),
        ("rendered", {"loop.unit": "epochs"}, ("loop.unit", "batches")),
        ("rendered", {"classes.shard": "true"}, ("classes", "loss")),
        ("rendered", {"loss": "ArcFace", "classes.rate": "0.5"}, ("classes.rate", "optimizer")),
        ("rendered", {"model.freeze_bn": "true"}, ("model.freeze_bn", "model.weights")),
        ("rendered", {"model.head_start": "pca", "model.head": "mlp"}, ("model.head", "model.head_start")),
        ("simclr-photos", {"batches.views": "1"}, ("data", "batches")),
        ("simclr-photos", {"loss": "ProxyAnchor"}, ("data", "loss")),
        ("simclr-photos", {"evaluation": "mine:metrics"}, ("evaluation", "data")),
        ("faces-arcface", {"evaluation": "mine:metrics"}, ("evaluation", "data")),
        ("faces-arcface", {"data.probes": "them"}, ("data.probes", "data.distractors")),
        ("faces-arcface", {"data.distractors": "others"}, ("data.probes", "data.distractors")),
        ("photos", {"data": "mine:data", "data.transformed": "true"}, ("data", "model")),
    ],
)
def test_what_does_not_go_together_is_refused_until_a_remedy_is_taken(name, changes, fields):
    recipe = find(name, changes)
    with pytest.raises(Incompatible) as caught:
        check(recipe)
    assert caught.value.fields == fields and caught.value.remedies
    known = [option for option in caught.value.remedies if option.value is not None]
    taken = [override(recipe, {option.field: option.value for option in known[:count]}) for count in (1, len(known))]
    assert any(fields not in [error.fields for error in conflicts(mended)] for mended in taken)

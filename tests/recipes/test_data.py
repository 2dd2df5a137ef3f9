"""What a recipe's data refuse before a file is opened."""

import pytest

from isosphere.paper import ALL, find
from isosphere.recipes import RecipeError, options, schema


@pytest.mark.parametrize("kind", [schema.Folder, schema.Benchmark, schema.Unlabeled])
def test_a_view_is_no_larger_than_its_image(kind):
    """A central crop larger than the image would have a black rim, which training crops do not have."""
    assert kind(size=128, shorter=128).size == 128
    with pytest.raises(ValueError, match="^size 128 needs shorter of at least 128, say 144$"):
        kind(size=128, shorter=127)


def test_the_repair_is_one_that_the_defaults_would_take():
    for size, shorter in ((64, 72), (227, 256)):
        with pytest.raises(ValueError, match=f"say {shorter}$"):
            schema.Folder(size=size, shorter=1)
    with pytest.raises(RecipeError, match="data: size 128 needs shorter of at least 128, say 144"):
        find("photos-sec", {"data.root": "x", "data.size": "128"})


def test_every_kind_with_both_sides_is_looked_at():
    both = [kind for kind in schema.Data.__args__ if {"size", "shorter"} <= set(options._hints(kind))]
    assert both == [schema.Folder, schema.Benchmark, schema.Unlabeled]


def test_pairs_have_names_of_their_own():
    recipe = find("lfw-cosface-sec", {"data.pairs": "lfw,mine:0.43"})
    assert recipe.data.pairs == ("lfw", "mine:0.43")
    with pytest.raises(RecipeError, match="data: pairs names mine twice"):
        find("lfw-cosface-sec", {"data.pairs": "mine,mine:0.43"})
    with pytest.raises(RecipeError, match="data: pairs cannot have the name rank1,"):
        find("lfw-cosface-sec", {"data.pairs": "rank1:0.43"})


def test_shared_classes_need_leave():
    assert not ALL["photos"].data.allow_shared
    assert find("photos", {"data.allow_shared": "true"}).data.allow_shared

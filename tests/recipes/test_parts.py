"""Parts of the user's own: what their path and source hash are, and when they are the same again."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest
from torch import nn

import own_parts
from isosphere.errors import BadArgument, NeedsObject, OtherSource
from isosphere.recipes import options, own, schema
from own_parts import Head, Net, my_loss

CODE = """
def made(margin):
    return lambda f, y: margin * ({body})
class Loss:
    def __call__(self, f, y):
        return {body}
found = [made(0.5), lambda f, y: {body}, Loss()]
"""


def hashes(text: str) -> list[str]:
    """Of functions and an object that were made at a prompt, where there is no source."""
    names: dict = {"__name__": "prompt"}
    exec(text, names)
    return [own.source_hash(value) for value in names["found"]]


def test_code_is_known_again_wherever_it_stands_and_in_another_process():
    here = hashes(CODE.format(body="f.mean() + 1"))
    assert len(set(here)) == 3 and all(map(len, here))
    assert hashes("\n\n\n" + CODE.format(body="f.mean() + 1")) == here
    assert not set(hashes(CODE.format(body="f.mean() + 2"))) & set(here)
    assert not set(hashes(CODE.format(body="f.sum() + 1"))) & set(here)
    words = CODE.format(body="y in {'a', 'b', 'c', 'd'}")
    code = f"from isosphere.recipes import own\n{words}\nprint(*map(own.source_hash, found))"
    for seed in ("1", "2"):  # of the order of sets
        done = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.stdout.split() == hashes(words), done.stderr


def with_margin(margin: float) -> Callable:
    """A function made in a function."""
    return lambda f, y: my_loss(f, y, margin)


def test_settings_count_as_far_as_they_are_shown():
    made = [partial(my_loss, margin=margin) for margin in (0.5, 1.0)] + [my_loss, nn.Linear(2, 3), nn.Linear(2, 4), Net]
    assert len({own.source_hash(value) for value in made}) == len(made)
    assert own.source_hash(Net(25)) == own.source_hash(Net(25)) != own.source_hash(Net(9))
    closed = [with_margin(margin) for margin in (0.5, 0.5, 1.0)]
    assert own.source_hash(closed[0]) == own.source_hash(closed[1]) != own.source_hash(closed[2])
    assert own.source_hash(len) == "", "what is built in has no source"


PATHS = {
    "function": (my_loss, "own_parts:my_loss", "path"),
    "class": (Net, "own_parts:Net", "path"),
    "object": (Net(), "own_parts:Net", "object"),
    "partial": (partial(Head, scale=1.0), "own_parts:Head", "object"),
    "lambda": (lambda f, y: f, None, "object"),
    "several": ((Net(), Net()), "own_parts:Net", "object"),
}


@pytest.mark.parametrize("value, path, given", PATHS.values(), ids=PATHS)
def test_a_path_is_enough_where_it_leads_back(value, path, given):
    found = own.described(value)
    assert found["given"] == given and path in (None, found["path"])
    if given == "path":
        assert own.find("loss", schema.OwnLoss(**found)) is value
    else:
        with pytest.raises(NeedsObject):
            own.find("loss", schema.OwnLoss(**found))
    assert own.find("loss", schema.OwnLoss(**found), value) is value


def test_another_source_is_refused_and_a_moved_one_is_not():
    option = schema.OwnLoss("m:f", "0123456789ab")
    for other in (schema.OwnLoss("m:f", "ba9876543210"), schema.OwnLoss("m:f")):
        with pytest.raises(OtherSource) as caught:
            own.same("loss", option, other)
        assert caught.value.remedy == ("loss.source", "any")
        own.same("loss", option, schema.OwnLoss("m:f", "any"))
    own.same("loss", option, schema.OwnLoss("moved:f", "0123456789ab", "object"))
    with pytest.raises(OtherSource):
        own.same("loss", schema.OwnLoss("a:f"), schema.OwnLoss("b:f"))
    with pytest.raises(OtherSource):
        own.find("loss", schema.OwnLoss("own_parts:my_loss", "0123456789ab"))


def test_a_class_is_made_with_the_sizes_that_it_names():
    assert own.made("loss", my_loss, dim=3, classes=2) is my_loss
    head = own.made("loss", partial(Head, scale=2.0), dim=3, classes=2)
    assert head.weights.shape == (2, 3) and head.scale == 2
    with pytest.raises(BadArgument) as caught:
        own.made("constraint", Head)
    assert caught.value.name == "constraint"


def test_a_part_of_your_own_keeps_the_size_of_the_images_and_embeddings():
    recipe = schema.Recipe(data=schema.Folder("photos", size=32, shorter=40, flip=False), model=schema.Model(dim=7))
    found = options.override(recipe, {"data": "m:data", "model": "m:Net", "model.head": "fc"})
    assert found.data == schema.OwnData("m:data", size=32, shorter=40, flip=False)
    assert found.model == schema.OwnModel("m:Net", head="fc", dim=7)
    assert options.override(schema.Recipe(data=schema.Faces()), {"data": "m:data"}).data.size == 112
    assert own_parts.Net.__name__ == found.model.backbone

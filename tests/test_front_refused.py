"""What `isosphere.fit` refuses: parts that are not what they should be, each with a type and its fields in a line."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from isosphere.errors import BadArgument, Incompatible, SingleImages, TooFewClasses, UnfillableBatch, UnknownField
from isosphere.recipes import schema
from own_parts import Head, Net, Pictures, Points, fit, my_loss


class NoLength:
    def __getitem__(self, index: int) -> None:
        return None


class Unequal(Pictures):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.rand(1, 5, 5 + index % 2), index % 8


class Alone(Pictures):
    def __getitem__(self, index: int) -> np.ndarray:
        return super().__getitem__(index)[0]


class Column(Net):
    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)[:, :, None]


class Several(Net):
    def forward(self, images: Tensor) -> tuple[Tensor, int]:
        return self.layers(images), 1


ANY_SIZE = nn.Sequential(nn.AdaptiveAvgPool2d(5), Net())
WRONG_ARGUMENTS = {
    "no length": ("data", {"data": NoLength()}),
    "no dataset": ("data", {"data": 3}),
    "three datasets": ("data", {"data": (Points(), Points(), Points())}),
    "paths in a pair": ("data", {"data": ("a:b", "c:d")}),
    "pixels and floats": ("data", {"data": (Points(), Pictures())}),
    "unequal shapes": ("data", {"data": Unequal(), "model": ANY_SIZE}),
    "unequal shapes in workers": ("data", {"data": Unequal(), "model": ANY_SIZE, "loop": {"workers": 1}}),
    "no labels": ("data[i]", {"data": Alone()}),
    "labels of floats": ("data", {"data": Pictures(labels=float)}),
    "several labels": ("data", {"data": Pictures(labels=lambda label: torch.ones(3))}),
    "no image": ("image", {"data": Pictures(str)}),
    "a column": ("model", {"model": Column()}),
    "several tensors": ("model", {"model": Several()}),
    "no module": ("model", {"model": my_loss}),
    "no weights": ("model", {"model": nn.Flatten()}),
    "a vector": ("loss", {"loss": lambda f, y: f.norm(dim=1)}),
    "no gradient": ("loss", {"loss": lambda f, y: f.detach().mean()}),
    "a number": ("loss", {"loss": lambda f, y: 0.5}),
    "no function": ("loss", {"loss": 3}),
    "a constraint": (("loss", None), {"loss": schema.SEC()}),
    "an unknown name": (("loss", None), {"loss": "Tripplet"}),
    "a class with arguments": ("loss", {"loss": partial(Head, scal=1)}),
    "a penalty of each": ("constraint", {"constraint": lambda f: f.norm(dim=1)}),
    "no penalty": ("constraint", {"constraint": 0.1}),
    "no metrics": ("evaluate", {"evaluate": lambda f, y: 0.5}),
    "a name of ours": ("evaluate", {"evaluate": lambda f, y: {"recall@1": 1}}),
    "a test set alone": ("evaluate", {"data": None, "evaluate": Points()}),
    "no callback": ("callbacks", {"callbacks": [3]}),
}
WRONG = {
    **{name: (BadArgument, {"name": part}, parts) for name, (part, parts) in WRONG_ARGUMENTS.items()},
    "one class": (TooFewClasses, {"found": 1}, {"data": Pictures(labels=lambda label: 0)}),
    "one image each": (SingleImages, {"classes": 8}, {"data": (Points(), Subset(Points(), range(8)))}),
    "a large batch": (UnfillableBatch, {"most": ("batches.size", 16)}, {"batches": {"size": 60, "per_class": 4}}),
    "other images": (Incompatible, {"fields": ("model", "data")}, {"model": Net(3)}),
    "a backbone of pixels": (Incompatible, {"fields": ("data", "model")}, {"model": "small_cnn"}),
    "an unknown field": (UnknownField, {"field": ("loops.steps", None)}, {"loops": {"steps": 3}}),
}


@pytest.mark.parametrize("kind, fields, parts", WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_in_a_line(kind, fields, parts, tmp_path):
    with pytest.raises(kind) as caught:
        fit(folder=tmp_path / "run", **parts)
    assert type(caught.value) is kind and "\n" not in str(caught.value)
    assert {name: getattr(caught.value, name) for name in fields} == fields

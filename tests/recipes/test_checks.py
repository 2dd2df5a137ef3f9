"""No option takes a number that cannot be: every numeric field of every kind, found in the dataclasses themselves."""

import math
import typing

import pytest

from isosphere.errors import BadArgument, Option
from isosphere.recipes import losses, options, schema

KINDS = {
    group: options._groups(hint) for group, hint in options._hints(schema.Recipe).items() if options._groups(hint)
}
SIGNED = {"base", "positive_margin", "negative_margin"}  # cosines: all other numbers are none below 0
ZERO = {  # what may be 0; all other numbers are above it
    "margin", "epsilon", "base", "positive_margin", "negative_margin", "eta", "rho", "ramp", "shift", "seed",
    "train_fraction", "held_out", "jitter", "weight_decay", "momentum", "warmup", "final", "save_every", "workers",
    "snapshot_every", "snapshot_images", "width", "patience", "folds", "backbone_lr", "memory", "head_first",
    "average", "randaugment", "erasing", "spread",
}  # fmt: skip
BEYOND = {  # the first number that is too large; all others have no end
    "base": 1.01, "positive_margin": 1.01, "negative_margin": 1.01, "rho": 1.01, "ramp": 1.01, "scale": 1.01, "at": 1.0,
    "train_fraction": 1.01, "fraction": 1.01, "jitter": 1.01, "rate": 1.01, "momentum": 1.0, "warmup": 1.0,
    "layer_decay": 1.01, "head_first": 1.0, "average": 1.0, "randaugment": 31, "erasing": 1.01,
    "balance": 1.0,
}  # fmt: skip


def numeric(kind: type) -> list[tuple[str, typing.Any]]:
    """The fields that hold a number or several, with their types."""
    return [(name, hint) for name, hint in options._hints(kind).items()
            if {int, float} & {one for choice in options._choices(hint) for one in (choice, *typing.get_args(choice))}]


FIELDS = [(group, kind, name, hint) for group, kinds in KINDS.items() for kind in kinds for name, hint in numeric(kind)]
IDS = [f"{kind.__name__}.{name}" for _, kind, name, _ in FIELDS]


def refused(kind: type, name: str) -> list[typing.Any]:
    """What the field must not hold."""
    ends = [] if name == "scale" and issubclass(kind, schema.Loss) else [BEYOND[name]] if name in BEYOND else []
    zero = [] if name in ZERO and kind is not losses.SphereFace else [0]
    return [math.nan, math.inf, -math.inf, True, "1", *([] if name in SIGNED else [-1]), *zero, *ends]


@pytest.mark.parametrize(("group", "kind", "name", "hint"), FIELDS, ids=IDS)
def test_a_number_that_cannot_be_is_refused(group, kind, name, hint):
    several = any(typing.get_origin(choice) is tuple for choice in options._choices(hint))
    for number in refused(kind, name):
        value = (*getattr(kind(), name)[:-1], number) if several else number
        with pytest.raises(BadArgument) as caught:
            kind(**{name: value})
        assert caught.value.name == name and repr(caught.value.value) == repr(value) and caught.value.expected
        if number != "1":
            with pytest.raises(BadArgument) as caught:
                options.override(schema.Recipe(**{group: kind()}), {f"{group}.{name}": value})
            assert caught.value.name == Option(f"{group}.{name}")


def test_the_seed_of_a_run_is_checked_too():
    for seed in (-1, 0.5, math.nan, True):
        with pytest.raises(BadArgument):
            schema.Recipe(seed=seed)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (schema.MultiStep, {"at": (0.5, 0.5)}),
        (schema.MultiStep, {"at": (0.5, 0.4)}),
        (schema.Cifar, {"scale": (0.5, 0.4)}),
        (schema.Cifar, {"scale": (0.5,)}),
        (schema.Cifar, {"scale": [0.2, 1.0]}),
        (schema.SEC, {"ramp": (1.0, 0.5)}),
        (schema.SEC, {"radius": "mean"}),
        (schema.SEC, {"relative": 1}),
        (schema.Model, {"head": "bn"}),
        (schema.Model, {"weights": 3}),
        (schema.Faces, {"pairs": ("lfw", 3)}),
        (schema.Batches, {"size": 120, "per_class": 7}),
        (schema.Folder, {"size": 128, "shorter": 127}),
        (schema.Benchmark, {"size": 128, "shorter": 127}),
        (schema.Unlabeled, {"size": 128, "shorter": 127}),
        (schema.Faces, {"pairs": ("mine", "mine:0.43")}),
        (schema.Faces, {"pairs": ("rank1:0.43",)}),
    ],
)
def test_what_does_not_fit_is_refused_by_the_name_of_a_field(kind, values):
    with pytest.raises(BadArgument) as caught:
        kind(**values)
    assert caught.value.name in values


def test_bounds_are_left_in_or_out():
    assert schema.Cifar(jitter=(0.0, 0.0, 0.0, 0.0), scale=(1.0, 1.0)).jitter[3] == 0
    assert schema.Validation(0.99).held_out == 0.99 and schema.Validation(2).held_out == 2
    assert schema.SEC(rho=0, ramp=(1.0, 1.0), radius=2).radius == 2
    assert schema.MultiStep(at=()).at == () and schema.SGD(momentum=0, weight_decay=0, class_lr=None).momentum == 0
    assert losses.ArcFace(margin=math.pi / 2).margin == math.pi / 2 and losses.Contrastive(-1, -1).negative_margin == -1
    assert schema.Folder(size=128, shorter=128).size == 128

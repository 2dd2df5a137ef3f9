"""What recipes are called: constraints, data sets, labels of several, the name of a run."""

from dataclasses import replace

import pytest

from isosphere.paper import ALL, find
from isosphere.recipes import labels, options
from tiny import tiny_recipe


def values(name, **changes):
    """A recipe as JSON holds it; `constraint_eta=0.5` changes constraint.eta."""
    changed = {key.replace("_", ".", 1): str(value) for key, value in changes.items()}
    return options.to_dict(find(name, changed))


@pytest.mark.parametrize(
    ("name", "changes", "method", "said"),
    [
        ("cub200-ms", {}, "none", "baseline"),
        ("cub200-ms-l2reg", {"constraint_eta": 0.001}, "l2reg", "L2-reg (η 0.001)"),
        ("cub200-ms-sec", {"constraint_eta": 0.25}, "sec", "SEC (η 0.25)"),
        ("cub200-ms-sec", {"constraint_eta": 1, "constraint_radius": 8.7}, "sec-fixed", "SEC, fixed radius 8.7 (η 1)"),
        ("cub200-ms-sec-ema", {"constraint_eta": 1}, "sec-ema", "SEC-EMA (η 1)"),
        ("cub200-ms-sec-relative", {"constraint_eta": 5}, "sec-relative", "relative SEC (η 5)"),
        ("cub200-ms-sec-initial", {"constraint_eta": 1}, "sec-initial", "SEC, initial radius (η 1)"),
        ("cub200-ms-balanced", {}, "balanced", "balanced directions"),
    ],
)
def test_constraints_have_words(name, changes, method, said):
    recipe = values(name, **changes)
    assert labels.method(recipe) == method and labels.constraint(recipe) == said


def test_a_recipe_of_another_version_has_labels_as_far_as_it_goes():
    assert labels.method({"constraint": {"kind": "Novel"}}) == ""
    assert labels.labels([{"data": None, "loop": 5}]) == ["baseline"]
    assert labels.dataset({"data": {"kind": "Benchmark", "name": "sop"}}) == "Stanford Online Products"


def test_labels_say_what_differs_and_no_more():
    plain, sec = values("cub200-ms"), values("cub200-ms-sec", constraint_eta=0.5)
    assert labels.labels([plain, sec]) == ["baseline", "SEC (η 0.5)"]
    other = values("cub200-ms", seed=1, optimizer_lr=0.001)
    rate = plain["optimizer"]["lr"]
    assert labels.labels([plain, other]) == [f"baseline, lr {rate:g}, seed 0", "baseline, lr 0.001, seed 1"]
    assert labels.labels([plain, other], without=("seed", "rate")) == ["baseline", "baseline"]
    assert labels.labels([plain, plain], ["a", "b"]) == ["baseline, a", "baseline, b"]
    assert labels.held_out(values("cub200-ms", validation_only=True)) == "held-out training classes"
    assert labels.held_out(values("simclr-cifar10", validation_only=True)) == "held-out training images"
    assert labels.about([plain, values("cars196-ms")]) == "CUB-200-2011 and Cars196, multi-similarity loss"


def test_recipes_differ_where_they_differ():
    first, second = (options.to_dict(tiny_recipe("rendered-sec", {"seed": seed})) for seed in (0, 4))
    assert labels.fields_apart([first, first, second]) == {"seed": ["0", "0", "4"]}
    assert labels.fields_apart([first, first | {"rate": 0.1 + 0.2}])["rate"] == ["-", "0.3"], "as it was meant"
    second["loss"] = {"kind": "Other", "novel": [1, None]}
    fields = labels.fields_apart([first, second])
    assert fields["loss.novel"] == ["-", "[1, None]"] and fields["loss.kind"][1] == "Other"


@pytest.mark.parametrize(
    ("field", "value", "same"),
    [("loop.log_every", 3, True), ("claim", "x", True), ("data.pack", "y", True), ("seed", 9, False),
     ("model.weights", "w", False), ("data.root", "elsewhere", False), ("optimizer.lr", 0.5, False)],
)  # fmt: skip
def test_how_often_is_written_is_not_learned(field, value, same):
    recipe = options.to_dict(find("photos-sec", {}))
    other = options.to_dict(find("photos-sec", {}))
    *groups, name = field.split(".")
    (other[groups[0]] if groups else other)[name] = value
    assert (labels.learned(recipe) == labels.learned(other)) == same


@pytest.mark.parametrize(
    ("name", "changes", "called", "claim"),
    [
        ("rendered-sec", {"loop.steps": "7"}, "rendered-sec", "norms pulled to the batch's mean"),
        ("rendered-sec", {"constraint.eta": "0"}, "rendered", "characters of many scripts: baseline"),
        ("rendered-sec", {"constraint.radius": "8"}, "rendered-sec-fixed", ": SEC, fixed radius 8 (η 0.1)"),
        ("rendered", {"constraint": "BalancedDirections"}, "rendered-balanced", ": balanced directions"),
        ("cars196-triplet-eta0.5", {"constraint.eta": "0.3"}, "cars196-triplet-sec", "cars196, triplet: SEC (η 0.3)"),
        ("simclr-cifar10-200-sec", {"constraint.eta": "0"}, "simclr-cifar10-200", "200 epochs: baseline"),
        ("photos-sec", {"data.root": "a/ok.csv"}, "ok-sec", "your own images: norms pulled to the batch's mean"),
        ("photos", {"data.root": "a/ok.csv"}, "ok", "your own images: no constraint on the norms"),
        ("simclr-photos-sec", {"data.root": "a/ok.csv"}, "simclr-ok-sec", "norms pulled to the batch's mean"),
        ("faces-cosface-sec", {"data.root": "a/people"}, "people-cosface-sec", "norms pulled to the batch's mean"),
        ("faces-arcface", {"data.root": "ok.rec"}, "ok-arcface", "no constraint on the norms"),
        ("lfw-arcface", {"data.root": "a/people"}, "lfw-arcface", "no constraint on the norms"),
        ("photos-sec", {"data.root": "ok.csv", "loss": "ArcFace"}, "ok-arcface-sec", "ArcFace loss: SEC (η 0.1)"),
        ("rendered-sec", {"constraint.eta": "0", "claim": "mine"}, "rendered", "mine"),
    ],
)
def test_a_run_is_called_and_claims_what_its_recipe_has_become(name, changes, called, claim):
    found, recipe = labels.named(name, find(name, changes), ALL)
    assert found == called and recipe.claim.endswith(claim)
    assert recipe == replace(find(name, changes), claim=recipe.claim)


def test_a_run_on_a_link_is_called_as_the_link(tmp_path):
    (tmp_path / "disk_7").mkdir()
    (tmp_path / "my_photos").symlink_to(tmp_path / "disk_7")
    recipe = find("photos-sec", {"data.root": f"{tmp_path}/my_photos/../my_photos/."})
    assert labels.named("photos-sec", recipe, ALL)[0] == "my_photos-sec"

"""The library from outside: public names as type checkers and a plain import see them, and a page of docs runs."""

import importlib.metadata
import importlib.util
import inspect
import math
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from PIL import Image
from pytorch_metric_learning import distances, losses, miners, reducers
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import isosphere
from isosphere.train.loop import prepare, train
from ranks import on_ranks
from test_readme import ROOT, blocks
from tiny import tiny_recipe

PAGE = ROOT / "docs" / "guides" / "own_loop.md"

# ---------------------------------------------------------------- names


def test_the_lists_of_public_names_are_new():
    spec = importlib.util.spec_from_file_location("public_names", ROOT / "tools" / "public_names.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for path, text in tool.FILES.items():
        assert text() == path.read_text(encoding="utf-8"), "run tools/public_names.py"
    assert {"ClassBatches", "verification", "identification", *isosphere.losses.__all__} <= set(isosphere.__all__)


@pytest.mark.parametrize("part", ["losses", "metrics", "models", "monitor", "functional"])
def test_packages_export_their_names(part):
    module = getattr(isosphere, part)
    assert all(hasattr(module, name) for name in module.__all__) and set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("name", ["data", "functional", "losses", "metrics", "models", "monitor", "sphere"])
def test_parts_are_there_after_a_plain_import(name):
    code = f"import isosphere; print(isosphere.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == f"isosphere.{name}", done.stderr


def test_the_version_is_the_installed_one(monkeypatch):
    assert isosphere.__version__ == importlib.metadata.version("isosphere")

    def lost(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", lost)
    assert isosphere.__version__ == "0+unknown"
    assert {"__version__", "linear_probe"} <= set(dir(isosphere))


# ---------------------------------------------------------------- the page

LOOP, FORMS, ACCUMULATED, GATHERED, TWO_VIEWS, METRICS, EXPORT, *OWN_LOSS, TAGS = blocks(PAGE, "python")
# a new one needs its test


def some_names() -> dict[str, Any]:
    """Small random data under the names that the page leaves open."""
    generator = torch.Generator().manual_seed(0)
    points, others = torch.randn(2, 24, 12, generator=generator)
    labels = torch.arange(24) % 6
    torch.manual_seed(0)
    return {
        "model": nn.Sequential(nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 8)), "dim": 8, "classes": 6,
        "criterion": isosphere.MultiSimilarityLoss(), "sec": isosphere.SEC(0.1),
        "images": points, "labels": labels, "first_views": points, "second_views": others, "step": 3, "steps": 10,
        "rank": 0, "isosphere": isosphere, "torch": torch,
    }  # fmt: skip


def gradients(module: nn.Module) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters()])


def whole_gradients(names: dict[str, Any], loss: Any) -> Tensor:
    """The gradients of the model by a loss of (embeddings, labels), of the whole batch at once; then none."""
    loss(names["model"](names["images"]), names["labels"]).backward()
    found = gradients(names["model"])
    names["model"].zero_grad()
    return found


def test_the_loop_trains():
    torch.manual_seed(0)
    names: dict[str, Any] = {"loader": [(torch.randn(8, 3, 32, 32), torch.arange(8) % 2)] * 2}
    exec(LOOP, names)
    assert names["embeddings"].shape == (8, 64) and names["loss"].isfinite()


def test_the_state_of_sec_goes_into_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = some_names()
    names["embeddings"] = names["model"](names["images"])
    exec(FORMS, names)
    mean = isosphere.sphere.norms(names["embeddings"]).mean()
    torch.testing.assert_close(torch.load("checkpoint.pt")["sec"]["running_radius"], mean.detach())
    assert not isosphere.SEC().state_dict() and not isosphere.SEC(radius=10.0).state_dict()
    assert list(isosphere.SEC(radius="initial").state_dict()) == ["running_radius"]


def test_accumulated_gradients_are_those_of_the_whole_batch():
    names = some_names()
    wanted = whole_gradients(names, lambda f, y: names["criterion"](f, y) + isosphere.SEC(0.1)(f))
    exec(ACCUMULATED, names)
    torch.testing.assert_close(gradients(names["model"]), wanted)


def test_a_radius_that_is_set_is_that_of_the_whole_batch():
    names = some_names()
    wanted = whole_gradients(names, lambda f, y: isosphere.SEC(0.1)(f))
    model, sec = names["model"], isosphere.SEC(0.1, radius="initial")
    for _ in range(2):  # at each step anew
        model.zero_grad()
        sec.set_radius(float(isosphere.sphere.norms(model(names["images"]).detach()).mean()))
        for part in names["images"].chunk(4):
            (sec(model(part)) / 4).backward()
        torch.testing.assert_close(gradients(model), wanted)


def distributed_gradients(code: str) -> dict[str, Tensor]:
    """Of model and head by the page's loss, on this rank's share of the batch."""
    names, wrap = some_names(), DistributedDataParallel
    if dist.is_initialized():
        names["rank"] = dist.get_rank()
        for name in ("images", "labels", "first_views", "second_views"):
            names[name] = names[name].chunk(dist.get_world_size())[dist.get_rank()]
    else:
        code, wrap = code.replace("DistributedDataParallel(", "("), nn.Identity()
    if "network =" not in code:
        names["network"] = wrap(names["model"])
    torch.manual_seed(names["rank"])  # DDP makes heads equal
    exec(code, names)
    names["loss"].backward()
    return {part: gradients(names[part]) for part in ("model", "head") if part in names}


@pytest.mark.parametrize("code", [GATHERED, TWO_VIEWS], ids=["gathered", "two views"])
def test_two_processes_have_the_gradients_of_one(code):
    wanted = distributed_gradients(code)
    for found in on_ranks(2, distributed_gradients, code):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_metrics_take_arrays_lists_and_words():
    names, generator = some_names(), torch.Generator().manual_seed(1)
    labels = torch.arange(60) % 6
    points = torch.randn(6, 8, generator=generator)[labels] + torch.randn(2, 60, 8, generator=generator)
    names |= {"embeddings": points[0], "labels": labels}
    names |= {"array": points[0].numpy(), "test_array": points[1].numpy()}
    names |= dict.fromkeys(("words", "test_words"), [f"class {label}" for label in labels.tolist()])
    names |= {"left": points[0].numpy(), "right": points[1].tolist()}
    names |= {"same": [1, 0] * 30, "fold": [index // 6 for index in range(60)]}
    exec(METRICS, names)
    assert set(names["probe"]) == {0.05, 0.5, 5.0}
    expected = isosphere.retrieval_metrics(points[0], labels)
    assert isosphere.retrieval_metrics(points[0].tolist(), names["words"]) == expected


def test_a_run_can_be_taken_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = tiny_recipe(changes={"loop.steps": 2, "loop.eval_every": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # alarms
        train(prepare(recipe, torch.device("cpu")), Path("runs/my_photos-seed0"))
    names: dict[str, Any] = {"isosphere": isosphere, "torch": torch}
    exec(EXPORT, names)
    program, copy = torch.export.load("model.pt2").module(), names["copy"].eval()
    for count in (1, 5):
        pixels = torch.randint(0, 256, (count, 3, 12, 12), dtype=torch.uint8)
        wanted = names["run"].model(pixels)
        torch.testing.assert_close(program(pixels), wanted)
        torch.testing.assert_close(copy(pixels), wanted)


def test_a_loss_of_ones_own_has_the_gradient_of_its_formula_and_takes_several_labels():
    names = some_names()
    raw = names["embeddings"] = torch.randn(24, 8, dtype=torch.float64, requires_grad=True)
    for code in OWN_LOSS:
        exec(code, names)
    cosines, margin = isosphere.sphere.cosines(raw), 0.3
    same = names["labels"][:, None] == names["labels"]
    gaps = 20 * torch.where(same, margin - cosines, cosines - margin)
    formula = nn.functional.softplus(gaps)[~torch.eye(24, dtype=torch.bool)].sum() / 20 / 24
    closed = names["softplus_slopes"](raw, names["labels"], margin)
    for loss in (names["loss"], closed):
        torch.testing.assert_close(loss, formula)
        torch.testing.assert_close(*(torch.autograd.grad(one, raw, retain_graph=True)[0] for one in (loss, formula)))
    exec(TAGS, names)
    pairs = torch.tensor([0, 0, 1, 2])  # images 0 and 1 share a label, 2 and 3 do not
    plain = [names[loss](names["embeddings"], pairs) for loss in ("criterion", "softplus")]
    torch.testing.assert_close(names["loss"], sum(plain))


# ---------------------------------------------------------------- training from Python


def test_the_page_about_training_from_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(120):
        file = tmp_path / "photos" / f"class{number % 30}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 8), (8 * (number % 30), number, 99)).save(file)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(ROOT / "docs" / "guides" / "python.md", "python"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # lazy layers
            exec(block.replace('"steps": 400', '"steps": 2, "workers": 0'), names)
    assert names["raw"].shape == (6, 64) and {"test/recall@1", "test/spread"} <= names["seen"][-1][1].keys()
    torch.testing.assert_close(names["unit"], nn.functional.normalize(names["raw"]))
    assert [path.name for path in sorted((tmp_path / "runs").iterdir())] == [
        "mine", "photos-multisimilarity-sec-seed1", "photos-sec-seed0", "photos-seed0",
    ]  # fmt: skip
    assert names["run"].model.dim == 64 and names["run"].folder == Path("runs/mine")


# ---------------------------------------------------------------- pytorch-metric-learning


def rows_of_defaults() -> list[list[str]]:
    text = PAGE.read_text(encoding="utf-8").split("## If you come from")[1]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


SAME_DEFAULTS = [
    ("SupConLoss()", "SupConLoss()"),
    ("CosineClassifier(dim, classes, CosFace())", "CosFaceLoss(classes, dim)"),
    ("ProxyAnchorLoss(dim, classes)", "ProxyAnchorLoss(classes, dim)"),
]
EQUALS = SAME_DEFAULTS + [(re.findall("`(.*?)`", ours)[0], theirs) for ours, _, theirs in rows_of_defaults() if theirs]


@pytest.mark.parametrize("ours, theirs", EQUALS, ids=lambda code: code.split("(")[0].strip("`"))
def test_what_the_table_calls_the_same_is_the_same(ours, theirs):
    peers = vars(distances) | vars(losses) | vars(miners) | vars(reducers)
    torch.manual_seed(0)
    labels = torch.arange(12).repeat(2) if "NTXent" in ours else torch.arange(24) % 6
    raw = (torch.randn(24, 8) * torch.rand(24, 1).exp()).double().requires_grad_()
    sizes = {"dim": 8, "classes": 6}
    mine = eval(ours, vars(isosphere) | {name: getattr(isosphere, name) for name in isosphere.__all__} | sizes).double()
    code, *miner = re.findall("`(.*?)`", theirs) or [theirs]
    other = eval(code, peers | sizes | {"degrees": math.degrees}).double()
    for weights in mine.parameters():
        (peer,) = other.parameters()
        peer.data = (weights if peer.shape == weights.shape else weights.T).detach().clone()
    found = other(raw, labels, *[eval(each, peers)(raw, labels) for each in miner])
    found = found / len(labels) if theirs.endswith("/ batch") else found
    value = mine(raw, labels)
    assert value > 0
    torch.testing.assert_close(value, found)
    torch.testing.assert_close(*(torch.autograd.grad(loss, raw)[0] for loss in (value, found)))


def test_their_defaults_are_what_the_table_says():

    def default(kind: str, name: str) -> Any:
        return inspect.signature(getattr(losses, kind)).parameters[name].default

    assert default("TripletMarginLoss", "margin") == 0.05 and default("MultiSimilarityLoss", "beta") == 50
    assert (default("ContrastiveLoss", "pos_margin"), default("ContrastiveLoss", "neg_margin")) == (0, 1)
    assert default("NTXentLoss", "temperature") == 0.07 and default("NormalizedSoftmaxLoss", "temperature") == 0.05
    assert (default("ArcFaceLoss", "margin"), default("ArcFaceLoss", "scale")) == (28.6, 64)
    assert (default("SphereFaceLoss", "margin"), default("SphereFaceLoss", "scale")) == (4, 1)
    for kind in ("TripletMarginLoss", "ContrastiveLoss"):
        loss = getattr(losses, kind)()
        reducer = loss.reducer.reducers["pos_loss"] if hasattr(loss.reducer, "reducers") else loss.reducer
        assert (type(loss.distance).__name__, loss.distance.power) == ("LpDistance", 1)
        assert type(reducer).__name__ == "AvgNonZeroReducer"
    assert losses.NPairsLoss().distance.normalize_embeddings
    assert losses.ArcFaceLoss(100, 50).W.shape == (50, 100) and 0.9 < losses.ArcFaceLoss(100, 50).W.std() < 1.1

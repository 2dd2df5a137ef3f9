"""paper_map.md is whole and names only what exists; and the few equations that no other test transcribes."""

import ast
import json
import re
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from isosphere import SEC, functional, runs, sphere
from isosphere.inference import load_run
from isosphere.losses.margins import CosFace
from isosphere.losses.slopes import through_directions
from isosphere.paper import published
from isosphere.paper.feature_maps import last_maps
from isosphere.train import loop
from references import pair_masks
from tiny import tiny_recipe

ROOT = Path(__file__).parents[1]
COLUMNS = ["what", "code", "test", "result", "missing"]
NUMBERS = {"Equations": 32, "Propositions": 5, "Tables": 12, "Figures": 9}


# ---------------------------------------------------------------- the map


def read_map(text: str) -> dict[str, list[dict[str, str]]]:
    """The rows of each heading's table, by column; the first column is called `place`."""
    found: dict[str, list[dict[str, str]]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        if lines:
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            assert rows[0][1:] == COLUMNS, rows[0]
            assert all(len(row) == len(COLUMNS) + 1 for row in rows), "a cell has a bar in it"
            found[part.splitlines()[0]] = [dict(zip(["place", *COLUMNS], row, strict=True)) for row in rows[2:]]
    return found


MAP = read_map((ROOT / "docs" / "evidence" / "paper_map.md").read_text(encoding="utf-8"))
ROWS = [pytest.param(row, id=f"{kind}-{row['place']}-{number}") for kind, rows in MAP.items()
        for number, row in enumerate(rows)]  # fmt: skip


@lru_cache
def names_in(path: Path) -> set[str]:
    """Functions, classes, methods and constants that a file defines."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


def absent(cell: str, folder: Path, mark: str) -> list[str]:
    """What a cell names as `path<mark>name`, a path below the folder, and is not there."""
    missing = []
    for named in re.findall(r"`([^`]*)`", cell):
        path, found, name = named.partition(mark)
        file = folder / path
        if not (found and path.endswith(".py") and file.is_file() and name in names_in(file)):
            missing.append(named)
    return missing


def test_everything_of_the_paper_is_there_once():
    assert set(MAP) == {*NUMBERS, "Sections"}
    for kind, last in NUMBERS.items():
        numbers = [int(number) for row in MAP[kind] for number in re.findall(r"\d+", row["place"])]
        assert sorted(numbers) == list(range(1, last + 1)), kind


@pytest.mark.parametrize("row", ROWS)
def test_what_a_row_names_exists(row):
    assert all(row.values()), "an empty cell says nothing"
    assert not absent(row["code"], ROOT / "src" / "isosphere", ":")
    assert not absent(row["test"], ROOT / "tests", "::")
    files = re.findall(r"`([^`]*)`", row["result"])
    others = re.findall(r"`((?:results|docs)/[^`]*)`", row["missing"])
    assert not [file for file in files + others if not (ROOT / file).is_file()]
    assert files or row["result"] == "exact" or row["result"].startswith("not yet measured")
    if "`" not in row["code"] or "`" not in row["test"]:
        assert row["missing"] != "nothing"


def test_what_has_been_measured_or_drawn_is_reported():
    """A table's runs under results/ and a figure under figures/ stand in their rows: change the map with them."""
    stated = {(kind, number): row["result"] for kind in ("Tables", "Figures") for row in MAP[kind]
            for number in re.findall(r"\d+", row["place"])}  # fmt: skip
    for file in sorted((ROOT / "results").glob("*.json")):
        held = runs.experiment_of(file)
        if held is None or not held.table.startswith("table"):
            continue
        cell = stated["Tables", held.table.removeprefix("table")]
        final = bool(json.loads(file.read_text(encoding="utf-8"))["runs"])
        assert f"`results/{file.name}`" in cell and ("no final run" in cell) != final, file.name
    drawn = (ROOT / "docs" / "evidence" / "figures").glob("fig*.png")
    for number in {re.match(r"fig(\d+)", file.name)[1] for file in drawn}:
        assert f"`docs/evidence/figures/fig{number}" in stated["Figures", number], number


def test_a_name_that_is_not_there_is_found(tmp_path):
    (tmp_path / "a.py").write_text("X: int = 1\nY, Z = 1, 2\nclass C:\n    def m(self): pass\ndef f(): g = 2\n")
    cell = "`a.py:X`, `a.py:Z`, `a.py:C.m`, `a.py:f`, `a.py:g`, `b.py:f`, `a.py`"
    assert absent(cell, tmp_path, ":") == ["a.py:g", "b.py:f", "a.py"]


# ---------------------------------------------------------------- equations that no other test transcribes


def some_batch(rows: int = 9, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(rows, 6, dtype=torch.float64, generator=generator)
    return draw[:, :5] * torch.exp(draw[:, 5:])


LABELS = torch.arange(3).repeat_interleave(3)
POSITIVE, NEGATIVE = pair_masks(LABELS)
TRIPLETS = [(a, p, n) for a in range(9) for p in range(9) if POSITIVE[a, p] for n in range(9) if NEGATIVE[a, n]]


def test_equation_1_the_gradient_of_a_cosine():
    left, right = some_batch(4).requires_grad_(), some_batch(3, seed=1)
    cosines = sphere.cosines(left, right)
    for i in range(4):
        for j in range(3):
            (found,) = torch.autograd.grad(cosines[i, j], left, retain_graph=True)
            own, other = left[i].detach() / left[i].detach().norm(), right[j] / right[j].norm()
            wanted = torch.zeros_like(left)
            wanted[i] = (other - (own @ other) * own) / left[i].detach().norm()
            torch.testing.assert_close(found, wanted)


def triplet_of(chords: Tensor) -> Tensor:
    return sum((chords[a, p] - chords[a, n] + 1.0).relu() for a, p, n in TRIPLETS) / len(TRIPLETS)


def tuplet_of(cosines: Tensor) -> Tensor:
    pairs = POSITIVE.nonzero().tolist()
    return sum(torch.log(1 + (25 * (cosines[a][NEGATIVE[a]] - cosines[a, p])).exp().sum()) for a, p in pairs) / 18


@pytest.mark.parametrize(
    "loss, of_similarities, kappa",
    [
        (functional.triplet, triplet_of, 2),
        (lambda f, y: functional.npair(f, y, 25.0, negatives="all"), tuplet_of, -1),
    ],
    ids=["chords", "cosines"],
)
def test_equations_4_and_6_the_gradient_as_a_sum_over_pairs(loss, of_similarities, kappa):
    f = some_batch().requires_grad_()
    (found,) = torch.autograd.grad(loss(f, LABELS), f)
    unit, lengths = [row / row.norm() for row in f.detach()], f.detach().norm(dim=1)
    cosines = torch.stack([torch.stack([one @ other for other in unit]) for one in unit])
    similarities = (2 - 2 * cosines if kappa == 2 else cosines).requires_grad_()
    (phi,) = torch.autograd.grad(of_similarities(similarities), similarities)
    for i in range(9):
        pull = sum((phi[i, j] + phi[j, i]) * kappa * (cosines[i, j] * unit[i] - unit[j]) for j in range(9) if j != i)
        torch.testing.assert_close(found[i], pull / lengths[i])
        tangent = sphere.tan_direction_change(f.detach(), found)[i]
        torch.testing.assert_close(tangent, pull.norm() / lengths[i] ** 2)


def test_equations_11_and_22_the_gradient_is_the_projected_one_over_the_norm():
    f, slopes = some_batch(), some_batch(seed=1)  # slopes: dL / d direction
    found = through_directions(f, sphere.directions(f), slopes)
    leaf = f.clone().requires_grad_()
    (by_autograd,) = torch.autograd.grad((sphere.directions(leaf) * slopes).sum(), leaf)
    for row, slope, one, other in zip(f, slopes, found, by_autograd, strict=True):
        unit = row / row.norm()
        wanted = (torch.eye(5, dtype=torch.float64) - torch.outer(unit, unit)) @ slope / row.norm()
        torch.testing.assert_close(one, wanted)
        torch.testing.assert_close(other, wanted)


@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_equations_9_12_23_and_24_our_sgd_is_the_papers(beta):
    changes = {"optimizer": "SGD", "optimizer.lr": 0.1, "optimizer.momentum": beta, "optimizer.weight_decay": 0}
    run = loop.prepare(tiny_recipe("rendered-sec", changes), torch.device("cpu"))
    weight = run.model.head[-1].weight
    wanted, velocity = weight.detach().clone(), torch.zeros_like(weight)
    for step in range(3):
        weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(step))
        velocity = beta * velocity + weight.grad
        wanted = wanted - 0.1 * velocity
        run.optimizer.step()
    torch.testing.assert_close(weight.detach(), wanted)


def test_equations_13_26_and_27_torchs_adam_is_another():
    """The paper's second moment is one number an embedding: a first step goes along the gradient, torch's does not."""
    slope = torch.tensor([3.0, 4.0], dtype=torch.float64)
    f = torch.nn.Parameter(torch.tensor([10.0, 0.0], dtype=torch.float64))
    f.grad = slope.clone()
    papers = f.detach() - 0.1 * slope / slope.norm()
    torch.optim.Adam([f], lr=0.1, eps=0).step()
    torch.testing.assert_close(f.detach(), torch.tensor([9.9, -0.1], dtype=torch.float64))
    assert not torch.allclose(f.detach(), papers, atol=1e-3)


@pytest.mark.parametrize("radius", ["batch", 3.0])
def test_equation_16_the_penalty_is_least_on_the_sphere(radius):
    f = some_batch().requires_grad_()
    first, wanted = f.detach().clone(), float(f.detach().norm(dim=1).mean()) if radius == "batch" else radius
    for _ in range(60):
        (slopes,) = torch.autograd.grad(SEC(1.0, radius=radius)(f), f)
        f.data -= 2.0 * slopes  # 9 embeddings: every deviation shrinks by 4 / 9 a step
    assert f.detach().norm(dim=1).tolist() == pytest.approx([wanted] * 9)
    torch.testing.assert_close(sphere.directions(f.detach()), sphere.directions(first))


@pytest.mark.parametrize("loss", ["Triplet", "CosFace", "NTXent"])
def test_equations_17_and_21_a_step_minimizes_loss_plus_eta_times_sec(loss):
    changes = {"loss": loss, "batches.per_class": 2, "constraint.eta": 0.7, "loop.precision": "float64"}
    run = loop.prepare(tiny_recipe("rendered-sec", changes), torch.device("cpu"))
    batch = next(iter(loop.training_feed(run)))
    with torch.no_grad():
        embeddings = run.model(batch.images)
        metric = float(run.criterion(embeddings, batch.labels))
    lengths = [float(row.norm()) for row in embeddings]
    mean = sum(lengths) / len(lengths)
    penalty = sum((length - mean) ** 2 for length in lengths) / len(lengths)
    found = loop.train_step(run, batch.images, batch.labels)
    assert float(found["metric"]) == pytest.approx(metric) and penalty > 0.1
    assert float(found["loss"]) == pytest.approx(metric + 0.7 * penalty)


def test_equation_20_the_gradient_of_a_cosine_softmax():
    f, weights = some_batch().requires_grad_(), some_batch(4, seed=1)
    (found,) = torch.autograd.grad(functional.cosine_softmax(f, LABELS, weights, CosFace(0.35), 64.0), f)
    unit, templates = sphere.directions(f.detach()), sphere.directions(weights)
    cosines = (unit @ templates.T).requires_grad_()
    logits = 64 * (cosines - 0.35 * torch.nn.functional.one_hot(LABELS, 4))
    (phi,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, LABELS), cosines)
    for i in range(9):
        pull = sum(phi[i, k] * (templates[k] - cosines[i, k].detach() * unit[i]) for k in range(4))
        torch.testing.assert_close(found[i], pull / f[i].detach().norm())


# ---------------------------------------------------------------- a footnote of Table 6, and Figure 8's maps


def test_table_6_has_its_footnote():
    others = published.LEARNING_RATES["cars196", "npair"]
    assert published.BETTER_NPAIR_ON_CARS196 == (2e-5, 2e-5, *others[2:]) and others[:2] == (1e-5, 1e-5)


def test_figure_8_maps_are_what_the_last_layer_gives(tmp_path):
    loop.fit(tiny_recipe("rendered", {"loop.steps": 2, "loop.eval_every": 2}), tmp_path / "run", "cpu")
    # Of an oblong image the network sees the middle, and the map is drawn over that, not over all of it.
    whole = torch.randint(256, (12, 30, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    Image.fromarray(whole.numpy()).save(tmp_path / "a.png")
    pixels = whole[:, 9:21]
    found = last_maps([tmp_path / "run"], [tmp_path / "a.png"])
    model = load_run(tmp_path / "run", "cpu").model
    with torch.no_grad():
        wanted = model.backbone.layers(model.preprocessing(pixels.permute(2, 0, 1)[None]))
    torch.testing.assert_close(torch.from_numpy(found["maps"][0]), wanted)
    assert wanted.shape == (1, 128, 2, 2) and wanted.max() > 0
    assert found["images"][0].shape == (1, 12, 12, 3) and (found["images"][0][0] == pixels.numpy()).all()

"""A run from cached images equals a run from files in bits, whatever happens to the files meanwhile."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from isosphere import errors
from isosphere.data import CachedSet, ImageSet, decoding
from isosphere.data.cache import filling
from isosphere.inference import load_run
from isosphere.paper import find
from isosphere.recipes import schema
from isosphere.train import loop, measure
from isosphere.train.build import build_task
from raised import raised

SMALL = {
    "model.dim": "8", "model.backbone": "small_cnn", "data.size": "16", "data.shorter": "20", "batches.size": "12",
    "loop.steps": "4", "loop.eval_every": "2", "loop.log_every": "1", "loop.save_every": "4", "loop.workers": "0",
}  # fmt: skip
BY_CLASS = {"batches.per_class": "3"}
MINIATURE = {"data.allow_missing": "true", "batches.per_class": "2", "model.freeze_bn": "false"}
VIEWS = {"data": "Unlabeled", "batches": "Shuffled", "batches.views": "2", "loss": "NTXent", "model.head": "mlp"}


@pytest.fixture(scope="module")
def listed(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [f"{path},{path.parent.name}" for path in sorted(photos.glob("*/*.png"))]
    file = tmp_path_factory.mktemp("list") / "photos.csv"
    file.write_text("path,label\n" + "\n".join(rows))
    return file


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A miniature CUB-200-2011."""
    root = tmp_path_factory.mktemp("cub")
    for number in range(200):
        (root / "images" / f"{number + 1:03d}.bird").mkdir(parents=True)
        for index in range(2):
            image = Image.effect_noise((24 + number % 5, 20), 90).convert("RGB")
            image.save(root / "images" / f"{number + 1:03d}.bird" / f"{index}.png")
    return root


def recipe_of(kind: str, source: Path, **changes: str) -> schema.Recipe:
    fields = SMALL | {"data.root": str(source)}
    fields |= VIEWS if kind == "unlabeled" else BY_CLASS
    fields |= MINIATURE if kind == "benchmark" else {}
    fields |= {name.replace("__", "."): value for name, value in changes.items()}
    return find({"benchmark": "cub200-ms-sec"}.get(kind, "photos-sec"), fields)


def trained(recipe: schema.Recipe, folder: Path) -> dict[str, Any]:
    """All that a run leaves, without its times."""
    result = loop.fit(recipe, folder, "cpu")
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    weights = {name: value.tolist() for name, value in state["model"].items()}
    return {"last": result["last"], "notes": result["notes"], "lines": lines, "weights": weights}


KINDS = {
    "folder": {}, "folder, with workers": {"loop__workers": "2"}, "list": {}, "unlabeled": {},
    "benchmark": {}, "held-out classes": {"validation__held_out": "40", "validation__only": "true"},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_from_the_cache_equals_a_run_from_files(
    kind: str, photos: Path, listed: Path, birds: Path, tmp_path: Path
) -> None:
    source = {"list": listed, "benchmark": birds, "held-out classes": birds}.get(kind, photos)
    name = "benchmark" if source == birds else kind
    found = {}
    for cache in ("none", str(tmp_path / "cache")):
        recipe = recipe_of(name, source, **KINDS[kind], data__cache=cache)
        task = build_task(recipe.data, torch.device("cpu"))
        kinds = {type(images) for images in (task.images, *task.evaluation.sets)}
        assert kinds == ({ImageSet} if cache == "none" else {CachedSet})
        found[cache] = trained(recipe, tmp_path / Path(cache).name / "run")
    first, second = found.values()
    assert first == second


def test_a_second_start_decodes_nothing(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of("folder", photos, data__cache=str(tmp_path / "cache"))
    first = trained(recipe, tmp_path / "first")
    for module, name in ((filling, "decode"), (decoding, "decode"), (ImageSet, "encoded")):
        monkeypatch.setattr(module, name, lambda *given: pytest.fail("decoded or read again"))
    assert trained(recipe, tmp_path / "second") == first
    run = load_run(tmp_path / "first", "cpu")
    assert measure.measure_run(run)["last"] == first["last"], "its own test images are cached, too"


@pytest.mark.parametrize("what", ["vanish", "change"])
def test_files_that_vanish_or_change_in_training(photos: Path, tmp_path: Path, what: str) -> None:
    """From a cache a run goes on as it began; without one it ends with an error that names the file."""

    def spoil(files: list[Path]) -> None:
        for file in files:
            file.unlink() if what == "vanish" else file.write_bytes(b"another")

    copy = shutil.copytree(photos, tmp_path / "photos")
    files, device = sorted(copy.glob("*/*.png")), torch.device("cpu")
    recipe = recipe_of("folder", copy, data__cache=str(tmp_path / "cache"))
    wanted = trained(recipe, tmp_path / "whole")
    runs = [loop.prepare(its, device) for its in (recipe, recipe_of("folder", copy, data__cache="none"))]
    spoil(files)
    (tmp_path / "left").mkdir()
    assert loop.train(runs[0], tmp_path / "left")["last"] == wanted["last"]
    (tmp_path / "files").mkdir()
    with pytest.raises(errors.UnreadableImage) as caught:
        loop.train(runs[1], tmp_path / "files")
    assert caught.value.path in map(str, files)
    if what == "change":
        with raised(errors.UnreadableImages, total=len(files)):
            loop.prepare(recipe, device)


def test_copies_are_found_by_the_caches_digests(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree(photos, tmp_path / "photos")
    data = recipe_of("folder", copy, data__cache=str(tmp_path / "cache")).data
    task = build_task(data, torch.device("cpu"))
    shutil.copy(task.images.paths[0], copy / task.evaluation.images.classes[0] / "copy.png")
    with pytest.warns(errors.CopiesWarning) as first:
        build_task(data, torch.device("cpu"))
    monkeypatch.setattr(os.path, "getsize", lambda path: pytest.fail("read again"))
    with pytest.warns(errors.CopiesWarning) as second:
        task = build_task(data, torch.device("cpu"))
    assert str(first[0].message) == str(second[0].message) and first[0].message.count == 1
    assert task.notes == ("1 test images are byte copies of training images",)

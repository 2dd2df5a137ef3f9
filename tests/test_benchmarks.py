"""Benchmarks at a tiny size: every contestant takes its turn, and what is missing is named."""

import importlib.util
import json
import multiprocessing
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from isosphere.data import cifar
from isosphere.losses import classes

FOLDER = Path(__file__).parents[1] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    """A file in benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def simclr(monkeypatch) -> ModuleType:
    """benchmarks/simclr.py as a module; CIFAR has its size again afterwards."""
    monkeypatch.setattr(cifar, "COUNTS", cifar.COUNTS)
    return benchmark("simclr")


def test_all_take_their_turn_and_who_is_missing_is_reported(simclr, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lightly", None)
    file = tmp_path / "simclr.json"
    monkeypatch.setattr(sys, "argv", ["simclr.py", "--device", "cpu", "--rounds", "1", "--json", str(file)])
    assert simclr.main() == 0
    found, said = json.loads(file.read_text()), capsys.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("lightly is missing")], said
    assert list(found["missing"]) == ["lightly"] and "lightly" not in found["versions"]
    assert found["versions"].keys() >= {"python", "torch", "torchvision"} and found["hardware"]["device"] == "cpu"
    names = [row["name"] for row in found["rows"]]
    assert names[:2] == ["ours", "the same, fixed batch"] and sum(name.startswith("v2") for name in names) == 3
    first = found["rows"][0]["ms"]
    for row in found["rows"]:
        assert row["images_per_second"] * row["ms"] == pytest.approx(1000 * found["size"]["batch"])
        assert row["ours_is_faster"] == pytest.approx(row["ms"] / first)


def test_lightly_takes_its_turn(simclr):
    pytest.importorskip("lightly")
    size = simclr.SIZES["cpu"]
    contestants = simclr.lightlys(np.zeros((40, 32, 32, 3), np.uint8), size, "cpu")
    assert len(contestants) == 2
    for contestant in contestants.values():
        assert simclr.turn(contestant._replace(warm=1), "cpu") > 0
        assert not multiprocessing.active_children(), "no worker goes on during the next one's turn"


def test_only_the_steps_after_the_first_are_timed(simclr):
    waits = iter([0.2, 0.2, 0.01, 0.01])
    ms = simclr.turn(simclr.Contestant(lambda: waits, time.sleep, warm=2, steps=2), "cpu")
    assert 10 <= ms < 100
    with pytest.raises(AssertionError, match="only 0 of 1 batches"):
        simclr.turn(simclr.Contestant(lambda: [0.0], time.sleep, warm=1, steps=1), "cpu")


def test_ours_reads_the_pixels_that_the_others_have(simclr, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), np.uint8)
    simclr.write_cifar(tmp_path, pixels)
    train, test = cifar.load("cifar10", tmp_path)
    ours = train.pixels.permute(0, 2, 3, 1).numpy()
    assert sorted(image.tobytes() for image in ours) == sorted(image.tobytes() for image in pixels)
    assert len(test) == 20


@pytest.mark.parametrize(
    "name, ms, ratio, target, reached",
    [
        ("ours", 29.9, 1.0, None, True), ("ours", 30.0, 1.0, None, False),
        ("the same, fixed batch", 20.0, 0.86, None, True), ("the same, fixed batch", 20.0, 0.84, None, False),
        ("a peer in bfloat16", 40.0, 1.3, 1.3, True), ("a peer in float32", 80.0, 2.9, 3.0, False),
    ],
)  # fmt: skip
def test_targets(simclr, name, ms, ratio, target, reached):
    assert simclr.verdict(name, ms, ratio, target, "cuda")["reached"] is reached
    assert simclr.verdict(name, ms, ratio, target, "cpu") == {"target": "", "reached": True}


@pytest.mark.parametrize("device, missing, reached, code", [
    ("cuda", {}, True, 0), ("cuda", {"lightly": "no such module"}, True, 1), ("cuda", {}, False, 1),
    ("cpu", {"lightly": "no such module"}, True, 0),
])  # fmt: skip
def test_a_target_that_nobody_measured_is_not_reached(simclr, monkeypatch, device, missing, reached, code):
    row = dict(name="ours", ms=1.0, spread_ms=[1.0, 1.0], images_per_second=1.0, ours_is_faster=1.0, target="< 30 ms")
    monkeypatch.setattr(simclr, "race", lambda *_: ([row | {"reached": reached}], missing))
    monkeypatch.setattr(simclr.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(simclr.torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(sys, "argv", ["simclr.py", "--device", device])
    assert simclr.main() == code


# ---------------------------------------------------------------- heads


@pytest.fixture
def heads(monkeypatch) -> ModuleType:
    """benchmarks/heads.py as a module, with small options; blocks have their size again afterwards."""
    monkeypatch.setattr(classes, "BLOCK", classes.BLOCK)
    small = "--device cpu --classes 300 --batch 12 --dim 128 --rounds 2 --steps 1 --warm 0 --block 1000"
    monkeypatch.setattr(sys, "argv", ["heads.py", *small.split()])
    return benchmark("heads")


def test_every_head_takes_its_turn_and_peers_compute_what_ours_does(heads, tmp_path, capsys):
    file = tmp_path / "heads.json"
    sys.argv += ["--json", str(file)]
    assert heads.main() == 0 and "no targets" in capsys.readouterr().out
    found = json.loads(file.read_text())
    names = ["ours", "F.linear + cross-entropy", "Partial FC, rate 1.0"]
    assert list(found["rows"]) == names + ["torch, chunked"] * hasattr(F, "linear_cross_entropy")
    assert found["options"]["classes"] == 300 and found["state_bytes"] == 3 * 4 * 300 * 128 and found["missed"] == []
    for row in found["rows"].values():
        low, high = row["spread_ms"]
        assert 0 < low <= row["ms"] <= high and row["bytes"] is None
    first, *others = (found["rows"][name]["first_loss"] for name in names)
    assert others == pytest.approx([first] * 2, rel=1e-4)


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="this torch has no linear cross-entropy")
def test_torchs_chunked_head_is_cross_entropy_of_scaled_cosines(heads):
    embeddings, weights = torch.randn(12, 8), torch.randn(30, 8)
    labels = torch.randint(30, (12,))
    cosines = F.normalize(embeddings) @ F.normalize(weights).T
    expected = F.cross_entropy(heads.SCALE * cosines, labels)
    torch.testing.assert_close(heads.torch_chunked(embeddings, labels, weights), expected)


def test_a_peer_that_computes_something_else_is_no_peer(heads, monkeypatch):
    monkeypatch.setattr(heads, "partial_fc", lambda embeddings, labels, weights: (embeddings @ weights.T).mean())
    with pytest.raises(AssertionError, match="Partial FC, rate 1.0 computes"):
        heads.main()


# ---------------------------------------------------------------- identification


def test_identification_takes_turns_with_the_bare_products(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))  # it shares parts with benchmarks/metrics.py
    monkeypatch.delitem(sys.modules, "metrics", raising=False)
    identification, threads = benchmark("identification"), torch.get_num_threads()
    file = tmp_path / "identification.json"
    small = ["--probes", "40", "--distractors", "1500", "--repeats", "1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["identification.py", *small])
    try:
        assert identification.main() == 0
    finally:
        torch.set_num_threads(threads)
        sys.modules.pop("metrics", None)
    assert "40 probes among 1,500 distractors" in capsys.readouterr().out
    found = json.loads(file.read_text())
    assert (found["probes"], found["distractors"], found["hardware"]["device"]) == (40, 1500, "cpu")
    probes, labels, strangers = identification.people("cpu", 40, 1500)
    assert labels.tolist() == [i // 2 for i in range(40)]
    probes, strangers = F.normalize(probes), F.normalize(strangers)
    ahead = [int((strangers @ probes[i] > probes[i] @ probes[i ^ 1]).sum()) for i in range(40)]
    for row, name, ks in zip(found["rows"], ("rank 1", "ranks 1 and 10"), ((1,), (1, 10)), strict=True):
        assert row["name"] == name and row["reached"] and 0 < row["memory"] < 4
        assert row["ratio"] == pytest.approx(row["ours"] / row["bare"]) and row["bare"] > 0
        for k in ks:
            assert row["measured"][f"rank{k}@1500"] == pytest.approx(sum(one < k for one in ahead) / 40)
        assert f"rank{ks[-1]}@1000" in row["measured"]


# ---------------------------------------------------------------- search


@pytest.mark.extras  # for faiss
def test_search_takes_turns_with_faiss_and_finds_the_same(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))  # it shares parts with benchmarks/metrics.py
    monkeypatch.delitem(sys.modules, "metrics", raising=False)
    search, threads, file = benchmark("search"), torch.get_num_threads(), tmp_path / "search.json"
    small = ["--count", "3000", "--approximate", "2000", "--queries", "40", "--repeats", "1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["search.py", *small])
    try:
        assert search.main() in (0, 1)  # such small times say nothing
    finally:
        torch.set_num_threads(threads)
        sys.modules.pop("metrics", None)
    found = json.loads(file.read_text())
    assert "the 10 nearest of 3,000 x 512" in capsys.readouterr().out and len(found["exact"]) == 6
    for row in found["exact"]:
        assert row["recall"] > 0.98 and row["seconds"] > 0
        assert row["reached"] is (row["ratio"] <= 1 or not row["target"])
    assert [row["name"] for row in found["approximate"]] == ["usearch", "usearch-int8"]
    assert all(row["recall"] >= 0.95 and row["reached"] for row in found["approximate"])
    assert {"faiss-cpu", "usearch", "torch"} <= found["versions"].keys()


def test_a_start_is_timed_by_its_stages(tmp_path):
    start = benchmark("start")
    start.photographs(tmp_path / "images", 2000)
    found = start.timed(tmp_path, 1)
    stages = found["seconds"]
    assert found["cpu_seconds"] > 0
    assert list(stages)[-1] == "first step" and list(stages.values()) == sorted(stages.values())
    assert len(stages) == 4 and (tmp_path / "cache").is_dir()


@pytest.mark.extras  # as it starts a server
def test_a_server_under_load(tmp_path, monkeypatch):
    serve, file = benchmark("serve"), tmp_path / "serve.json"
    monkeypatch.setattr(serve, "NETWORKS", {"small_cnn": 32})
    monkeypatch.setattr(serve, "PHOTOS", 12)
    monkeypatch.setattr(sys, "argv", ["serve.py", "--repeats", "1", "--seconds", "0.6", "--json", str(file)])
    assert serve.main() == 0
    rows = json.loads(file.read_text())["rows"]
    assert [row["clients"] for row in rows] == [1, 8, 64] and rows[0]["batch"] == 1 < rows[2]["batch"]
    for row in rows:
        assert 0 < row["model_share"] <= 1.05 and row["median_ms"] <= row["p99_ms"] and not row["failed"]
        assert 0 < row["requests_per_second"] and 0 < row["model_alone_per_second"]

"""Two gloo processes against one on the whole batch: losses, gradients, weights, statistics and radius."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torch import nn

import ranks
from isosphere import distributed, load_run
from isosphere.errors import BadArgument, Option
from isosphere.train.loop import fit
from tiny import TINY, tiny_recipe

CASES = {
    "triplet, SEC": {"loss": "Triplet"},
    "semi-hard, SEC-EMA": {"loss": "SemiHard", "constraint.radius": "ema", "constraint.rho": 0.2},
    "n-pair, L2-reg": {"loss": "NPair", "constraint": "L2Reg"},
    "multi-similarity, relative SEC": {"loss": "MultiSimilarity", "constraint.relative": "true"},
    "supcon, initial radius": {"loss": "SupCon", "constraint.radius": "initial"},
    "contrastive, balanced": {
        "loss": "Contrastive", "constraint": "BalancedDirections", "optimizer": "SGD", "optimizer.lr": 0.01,
    },
    "nt-xent, ramp": {"loss": "NTXent", "constraint.ramp": "0,1", "batches.per_class": 2},
    "proxy-anchor, SEC": {"loss": "ProxyAnchor"},
    "softmax, SEC": {"loss": "Softmax"},
    "proxy-anchor, head first": {"loss": "ProxyAnchor", "optimizer": "AdamW", "schedule.head_first": 0.3},
    "arcface, SEC-EMA, clipped": {"loss": "ArcFace", "constraint.radius": "ema", "loop.clip": 0.5},
}


def same(found: dict, wanted: dict) -> None:
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert torch.allclose(found[name], wanted[name], rtol=1e-7, atol=1e-9), name


@pytest.fixture(scope="module")
def traces():
    recipes = [tiny_recipe("rendered-sec", {"loop.precision": "float64"} | case) for case in CASES.values()]
    return ranks.our_loop(recipes), ranks.on_ranks(2, ranks.our_loop, recipes)


@pytest.mark.parametrize("number", range(len(CASES)), ids=list(CASES))
def test_our_loop_on_two_ranks_is_our_loop_on_one(traces, number):
    alone, both = traces
    for together in both:
        found, wanted = together[number], alone[number]
        assert len(wanted["losses"]) == 20 and wanted["losses"][0] > 0
        torch.testing.assert_close(torch.tensor(found["losses"]), torch.tensor(wanted["losses"]), rtol=1e-7, atol=1e-9)
        for part in ("gradients", "weights", "statistics", "constraint"):
            same(found[part], wanted[part])
    assert any(gradient.abs().max() > 0 for gradient in alone[number]["gradients"].values())


def test_synchronized_batch_norm_keeps_an_activation_inside_it():
    dtypes = torch.float64, torch.float32, torch.bfloat16
    both = zip(*ranks.on_ranks(2, ranks.synced_activation, dtypes), strict=True)
    for dtype, wanted, found in zip(dtypes, ranks.synced_activation(dtypes), both, strict=True):
        assert wanted.min() == 0 and wanted.dtype == dtype, "there is an activation at all"
        torch.testing.assert_close(torch.cat(found), wanted)


def test_a_batch_norm_that_cannot_be_synchronized_is_named(monkeypatch):
    monkeypatch.setattr(distributed, "world", lambda: 2)
    for lacking in ({"affine": False}, {"track_running_stats": False}, {"momentum": None}):
        with pytest.raises(BadArgument):
            distributed.synchronize_batch_norm(nn.Sequential(nn.BatchNorm2d(2, **lacking)))


def test_without_sync_the_radius_would_be_another():
    """The test above can fail: each rank's own mean gives another gradient."""
    found = ranks.on_ranks(2, ranks.sec_gradient, False)
    synced = ranks.on_ranks(2, ranks.sec_gradient, True)
    assert not torch.allclose(found[0], synced[0])
    torch.testing.assert_close(torch.cat(synced) / 2, ranks.whole_sec_gradient())


def test_a_run_embeds_what_its_own_rank_is_given(tmp_path):
    fit(tiny_recipe(changes={"loop.steps": 1}), tmp_path / "run", "cpu")
    files = [tmp_path / f"{number}.png" for number in range(7)]
    for number, file in enumerate(files):
        Image.new("RGB", (130, 120), (30 * number, 200 - 20 * number, 90)).save(file)
    wanted = ranks.own_embeddings(tmp_path / "run", files)
    both = ranks.on_ranks(2, ranks.own_embeddings, tmp_path / "run", files)
    assert [len(photographs) for photographs, _ in both] == [3, 4]
    for kind in range(2):
        torch.testing.assert_close(torch.cat([found[kind] for found in both]), wanted[kind], rtol=1e-4, atol=1e-5)


def test_gather_refuses_other_numbers_of_rows_on_all_ranks():
    assert ranks.on_ranks(2, ranks.uneven_gather, [4, 4], [4, 4]) == [None, None]
    for rows, labels in (([4, 3], [4, 3]), ([4, 4], [4, 3])):
        assert ranks.on_ranks(2, ranks.uneven_gather, rows, labels) == [(rows, labels)] * 2


def test_gather_refuses_other_types_and_widths_on_all_ranks():
    f32, f64, i32, i64 = torch.float32, torch.float64, torch.int32, torch.int64
    assert ranks.on_ranks(2, ranks.gather_of_kinds, [(f32, 3, i64), (f32, 3, i64)]) == [0, 0]
    for other in ((f64, 3, i64), (f32, 5, i64), (f32, 3, i32)):
        assert ranks.on_ranks(2, ranks.gather_of_kinds, [(f32, 3, i64), other]) == [2, 2]


def test_penalties_of_unequal_ranks_are_those_of_the_whole_batch():
    """SEC was 21 % off with rows of 6 and 2."""
    settings = [{}, {"relative": True}, {"radius": "ema"}, {"radius": 2.0}, {"radius": "initial"}]
    for sizes in ([6, 2], [4, 4]):
        wanted = ranks.uneven_penalties(sizes, settings)
        both = ranks.on_ranks(2, ranks.uneven_penalties, sizes, settings)
        for number, whole in enumerate(wanted):
            torch.testing.assert_close(torch.cat([found[number] for found in both]), whole)


def test_load_run_leaves_torch_distributed_to_its_caller(tmp_path, monkeypatch):
    fit(tiny_recipe(changes={"loop.steps": 1}), tmp_path / "run", "cpu")
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_: pytest.fail("called"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert load_run(tmp_path / "run", torch.device("cpu")).device == torch.device("cpu")


def test_a_world_of_one_needs_no_rank(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "RANK"} | {"WORLD_SIZE": "1"}
    fields = [word for key, value in (TINY | {"loop.steps": "1"}).items() for word in (f"--{key}", value)]
    for words in (["train", "rendered-sec", "--out", "run", *fields], ["evaluate", "run"]):
        command = [sys.executable, "-m", "isosphere", *words, "--device", "cpu"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "R@1" in done.stdout, done.stderr


def test_a_device_is_any_that_is_here(monkeypatch):
    for name in ("cpu", "cpu:0", torch.device("cpu")):
        assert distributed.find_device(name) == distributed.pick_device(name) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert distributed.find_device("auto") == torch.device("cpu")
    for name in ("tpu", "cuda:x", "cuda:99", "xpu:99", torch.device("meta")):
        with pytest.raises(BadArgument) as error:
            distributed.find_device(name)
        assert (error.value.name, error.value.value) == (Option("device"), str(name))


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_the_device_of_a_process_becomes_the_current_one(kind, monkeypatch):
    chosen = []
    monkeypatch.setattr(distributed, "find_device", torch.device)
    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace(set_device=chosen.append))
    assert {distributed.pick_device(name) for name in (kind, f"{kind}:1")} == {torch.device(kind)}
    assert sorted(chosen) == [0, 1]


def torchrun(folder: Path, steps: int) -> subprocess.Popen:
    changes = [word for key, value in (TINY | {"loop.steps": str(steps)}).items() for word in (f"--{key}", value)]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command += ["-m", "isosphere", "train", "rendered-sec", "--out", str(folder), "--device", "cpu", *changes]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_torchrun_trains_to_the_end(tmp_path):
    process = torchrun(tmp_path / "run", steps=12)
    shown, err = process.communicate(timeout=120)
    assert process.returncode == 0 and "Warning" not in err, err
    assert "R@1" in shown and (tmp_path / "run" / "result.json").exists()
    alone = fit(tiny_recipe("rendered-sec", {"loop.steps": 12}), tmp_path / "alone", "cpu")
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert found["last"]["norm_mean"] == pytest.approx(alone["last"]["norm_mean"], rel=1e-2)


def test_sigterm_stops_all_ranks_at_one_step(tmp_path):
    process = torchrun(tmp_path / "run", steps=100000)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "checkpoint.pt").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode > 0, "torchrun's own code: it failed, and was not killed"
    saved = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    for rank in range(2):
        assert f"rank {rank}: stopped and saved at step {saved['step']} of 100000" in " ".join(err.split())

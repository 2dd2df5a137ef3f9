"""`isosphere inspect`: metrics and norms of arrays from any tool."""

import json
import re

import numpy as np
import pytest
import torch

from commands import isosphere, refusal
from numbers_in import numbers


@pytest.mark.parametrize(
    "spread, given", [(0.1, "the norms hardly spread"), (0.2, r"turns 1.5 times (Adam) or 2.2 times (SGD) as far")]
)
def test_inspect_says_whether_sec_could_matter(spread, given, tmp_path):
    unit = np.random.default_rng(0).normal(size=(40, 8))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    np.save(tmp_path / "e.npy", 5 * unit * np.where(np.arange(40) % 2, 1 - spread, 1 + spread)[:, None])
    np.save(tmp_path / "y.npy", np.arange(40) // 4)
    shown = " ".join(isosphere("inspect", "e.npy", "y.npy", folder=tmp_path).stdout.split())
    assert f"{spread:.3f}" in numbers(shown) and given in shown


def test_inspect_reads_nothing_from_the_rounding_of_normalized_norms(tmp_path):
    raw = np.random.default_rng(0).normal(size=(40, 8))
    np.save(tmp_path / "e.npy", (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32))
    np.save(tmp_path / "y.npy", np.arange(40) // 4)
    shown = isosphere("inspect", "e.npy", "y.npy", folder=tmp_path).stdout
    assert "R@1" in shown and "normalized" in shown
    assert "AUROC" not in shown and "errors" not in shown


def test_inspect_shows_of_norms_where_there_are_no_classes(tmp_path):
    lengths = np.arange(1.0, 41)  # 20.5 on average, and (40 ** 2 - 1) / 12 the variance
    np.save(tmp_path / "e.npy", np.eye(8)[np.arange(40) % 8] * lengths[:, None])
    np.save(tmp_path / "same.npy", np.zeros(40, int))
    np.save(tmp_path / "names.npy", np.array(["cat", "dog"] * 20))
    for words, given in (((), "no labels"), (("same.npy",), "one class only")):
        shown = isosphere("inspect", "e.npy", *words, folder=tmp_path).stdout
        flowing = " ".join(shown.split())
        assert numbers(flowing)[0] == "40" and f"{given}: " in flowing and "left out" in flowing
        assert not any(word in shown for word in ("R@1", "MAP@R", "NMI", "AUROC"))
        assert {"20.5", "133.3"} <= {*numbers(flowing)} and "could matter" in flowing
        rows = [line.split()[1::2] for line in shown.splitlines() if line[:1] == "│"]
        assert [row[0] for row in rows] == [str(number) for number in range(1, 11)]
        assert rows[0][1:] == ["1", "4.9", "4"] and rows[-1][1:] == ["36.1", "40", "4"]
    both = isosphere("inspect", "e.npy", "names.npy", folder=tmp_path).stdout
    assert numbers(both)[:2] == ["40", "2"] and "R@1" in both and "left out" not in both


def test_inspect_of_odd_files(tmp_path):
    generator = np.random.default_rng(0)
    np.save(tmp_path / "e.npy", generator.normal(size=(12, 4)).astype(">f4"))  # as another machine may write it
    np.save(tmp_path / "names.npy", np.array(["cat", "dog", "owl"] * 4))
    np.save(tmp_path / "half.npy", np.arange(12) / 2)
    np.save(tmp_path / "short.npy", np.arange(5))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "zero.npy", np.zeros((12, 4)))
    np.savez(tmp_path / "many.npz", a=np.zeros(3), b=np.zeros(3))
    (tmp_path / "empty.npy").touch()
    (tmp_path / "paths.txt").write_text("a/0.png\ta\n" * 12)
    np.save(tmp_path / "one.npy", np.zeros(5, int))
    bad = generator.normal(size=(12, 4))
    bad[7, 1] = np.nan
    np.save(tmp_path / "nan.npy", bad)
    named = isosphere("inspect", "e.npy", "names.npy", folder=tmp_path).stdout
    assert numbers(named)[:2] == ["12", "3"]
    assert "zero" in isosphere("inspect", "zero.npy", "names.npy", folder=tmp_path).stdout and "zero" not in named
    np.save(tmp_path / "whole.npy", np.arange(12.0) % 3)
    assert numbers(isosphere("inspect", "e.npy", "whole.npy", folder=tmp_path).stdout)[:2] == ["12", "3"]
    np.save(tmp_path / "lost.npy", np.array([0, 1, np.nan, -np.inf] * 3, dtype=np.float16))
    for words, culprit in {
        ("e.npy", "half.npy"): "float64",
        ("e.npy", "lost.npy"): "float16",
        ("e.npy", "short.npy"): "12",
        ("objects.npy", "names.npy"): "objects.npy",
        ("many.npz", "names.npy"): "many.npz",
        ("empty.npy", "names.npy"): "empty.npy",
        ("e.npy", "paths.txt"): "paths.txt",
        ("e.npy", "one.npy"): "labels",
        ("nan.npy", "names.npy"): "row 7",
        ("nan.npy",): "row 7",
        ("short.npy",): "(N, D)",
    }.items():
        given = str(refusal("inspect", *words, folder=tmp_path))
        assert culprit in given and "pickle" not in given


@pytest.mark.parametrize(
    "names, given",
    [
        (("embeddings", "labels"), "embeddings, labels"),
        (("X", "y"), "embeddings (X), labels (y)"),
        (("features", "targets"), "embeddings (features), labels (targets)"),
        ((), "embeddings (arr_0), labels (arr_1)"),
    ],
)
def test_inspect_of_one_archive_shows_what_two_files_do(names, given, tmp_path):
    arrays = np.random.default_rng(0).normal(size=(40, 8)), np.array(["cat", "dog", "owl", "hen"] * 10)
    for name, array in zip(("e.npy", "y.npy"), arrays, strict=True):
        np.save(tmp_path / name, array)
    np.savez(tmp_path / "both.npz", *(() if names else arrays), **dict(zip(names, arrays, strict=False)))
    wanted = isosphere("inspect", "e.npy", "y.npy", folder=tmp_path).stdout
    shown = isosphere("inspect", "both.npz", folder=tmp_path).stdout
    assert shown == f"both.npz holds {given}\n{wanted}" and numbers(wanted)[:2] == ["40", "4"]


def test_inspect_of_archives(trained, tmp_path):
    generator = np.random.default_rng(0)
    embeddings, labels = generator.normal(size=(40, 8)), np.arange(40) // 4
    np.save(tmp_path / "y.npy", labels)
    objects = np.array([{}] * 40, dtype=object)
    for name, arrays in {
        "alone": {"vectors": embeddings}, "ids": {"x": embeddings, "[ids]": labels}, "none": {},
        "unknown": {"vectors": embeddings, "ids": labels}, "two": {"embeddings": embeddings, "y": labels, "Y": labels},
        "own": {"embeddings": embeddings, "features": embeddings[:9], "labels": labels, "y": labels[:9]},
        "objects": {"embeddings": embeddings, "labels": objects}, "turned": {"arr_0": labels, "arr_1": embeddings},
        "every": {f"image{number}": embeddings[number] for number in range(40)},
    }.items():  # fmt: skip
        np.savez(tmp_path / f"{name}.npz", **arrays)
    torch.save({"embeddings": torch.ones(4, 2)}, tmp_path / "torch.pt")
    whole = (tmp_path / "own.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:300])
    (tmp_path / "damaged.npz").write_bytes(whole[:400] + bytes([whole[400] ^ 255]) + whole[401:])
    for words, given in {
        ("alone.npz",): "alone.npz holds embeddings (vectors) 40 embeddings, no labels",
        ("ids.npz",): "ids.npz holds embeddings (x); not used: [ids] 40 embeddings, no labels",
        ("ids.npz", "y.npy"): "ids.npz holds embeddings (x); not used: [ids] 40 embeddings, 10 classes",
        ("own.npz",): "own.npz holds embeddings, labels; not used: features, y 40 embeddings, 10 classes",
    }.items():
        assert " ".join(isosphere("inspect", *words, folder=tmp_path).stdout.split()).startswith(given)
    for name, culprits in {
        "unknown.npz": ("unknown.npz", "vectors", "ids"),
        "two.npz": ("two.npz", "y", "Y"),
        "none.npz": ("none.npz",),
        "every.npz": ("every.npz", "image1"),
        "objects.npz": ("objects.npz", "labels"),
        "turned.npz": ("(N, D)", "(40,)"),
        "torch.pt": ("torch.pt",),
        "cut.npz": ("cut.npz",),
        "damaged.npz": ("damaged.npz", "embeddings"),
    }.items():
        given = str(refusal("inspect", name, folder=tmp_path))
        assert all(culprit in given for culprit in culprits), given


def test_inspect_of_a_runs_own_archive_shows_its_norms_and_metrics(trained):
    last = json.loads((trained / "result.json").read_text())["last"]
    shown = " ".join(isosphere("inspect", "run/test_embeddings.npz", folder=trained.parent).stdout.split())
    held, _, rest = shown.partition(";")
    assert held.endswith("(embeddings x scale), labels") and "classes" in rest.split()
    assert f"{100 * last['recall@1']:.2f}" in shown and numbers(rest)[:2] == ["25", "5"]
    mean = float(re.search(r"norms: mean ([\d.e+-]+),", shown).group(1))
    assert mean == pytest.approx(last["norm_mean"], rel=2e-3)



"""Run folders, files of results and of monitors, as isosphere writes them, with numbers of our own."""

import json
import warnings
from pathlib import Path

import numpy as np
import torch

from isosphere.monitor import NormMonitor
from isosphere.paper import find
from isosphere.recipes import options
from tiny import tiny_recipe

NASTY = '<script>window.hacked = 1</script>"><img src=x onerror="window.hacked = 1"> & [[title]]'
CLASSES = [NASTY, "sparrow", "gull", "wren", "crow", "tern", "finch", "owl"]


def write_run(folder: Path, recall: float, seed: int, eta: str = "0.1", per_class: int = 6, size: int = 24,
              alarms: tuple[int, ...] = ()) -> Path:  # fmt: skip
    """A finished run as the loop leaves it, with numbers of our own."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    recipe = options.to_dict(tiny_recipe("rendered-sec", {"constraint.eta": eta, "claim": NASTY, "seed": 3}))
    last = {f"recall@{k}": recall + 0.02 * (k - 1) for k in (1, 2, 4, 8)}
    last |= {"map@r": recall / 2, "nmi": 0.5, "f1": 0.25, "singletons": 0}
    last |= {"norm_mean": 4.0 + seed, "norm_variance": 0.25, "norm_cv": 0.5 / (4.0 + seed)}
    lines = [{"step": 0, "kind": "test", **last, "recall@1": 0.1, "map@r": 0.05}]
    for step in range(1, 21):
        values = {"loss": 1 / step, "metric": 0.9 / step, "penalty": 0.1 / step}
        values |= {"norm_mean": 4 + seed + step / 50, "norm_variance": 1 / step, "norm_cv": 0.2, "not_finite": 0}
        values |= {"norm_min": 2 + seed, "norm_max": 7 + seed, "lr_proxy_mean": 1e-4 / step, "lr_proxy_cv": 0.21}
        values |= {"radial_share": 1e-15 * step, "tangential_share": 1.0, "lr": 9.999999747378752e-06}
        lines.append({"step": step, "kind": "train", **values})
    lines.append({"step": 20, "kind": "test", **last})
    for step in alarms:
        lines.append({"step": step, "kind": "warning", "warning": "spreading", "text": f"norms spread, {NASTY}"})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "recipe.json").write_text(json.dumps(recipe))
    about = {"versions": {"torch": "2.6", "isosphere": None}, "hardware": {"threads": 2}, "command": NASTY}
    (folder / "run.json").write_text(json.dumps(about))
    result = {"recipe": recipe, "last": last, "oracle": {"step": 20} | last, "seconds": 1.5, **about}
    (folder / "result.json").write_text(json.dumps(result))

    labels = np.repeat(np.arange(len(CLASSES)), per_class)
    embeddings = generator.normal(size=(len(CLASSES), 8))[labels] + 0.8 * generator.normal(size=(len(labels), 8))
    scale = np.abs(embeddings).max()
    halves = (embeddings / scale).astype(np.float16)
    np.savez(folder / "test_embeddings.npz", embeddings=halves, scale=scale, labels=labels, classes=np.array(CLASSES))
    pixels = generator.integers(0, 256, (len(labels), 3, size, size), dtype=np.uint8)
    np.savez_compressed(folder / "test_thumbnails.npz", pixels=pixels)

    (folder / "snapshots").mkdir()
    norms = 4 * np.exp(0.3 * generator.normal(size=50))
    for step in range(0, 21, 5):
        angles = {"angles": (30 / norms).astype(np.float32), "since": step - 5} if step else {}
        np.savez(folder / "snapshots" / f"step-{step:07d}.npz", indices=np.arange(50), norms=norms, **angles)
    return folder


def results_file(path: Path) -> Path:
    runs = []
    for cell in ("cub200-ms-lr1e-05", "cub200-ms-lr0.0002"):
        for method, base in (("sec", 0.62), ("none", 0.60), ("sec-relative", 0.63)):
            for seed in range(2):
                fields = {
                    "seed": seed,
                    "constraint.eta": 0 if method == "none" else len(method),
                    "loop.save_every": seed,
                }
                fields["optimizer.lr"] = cell.split("lr")[1]
                recipe = options.to_dict(tiny_recipe("rendered-sec", fields))
                value = base + 0.01 * seed
                last = {"recall@1": value, "map@r": value / 2, "nmi": 0.5, "f1": 0.2, "norm_mean": 3, "norm_cv": 0.1}
                norms = [[step, 1 / step, 3.0, 0.5] for step in (10, 20, 30)]
                runs.append({"cell": cell, "method": method, "recipe": recipe, "last": last, "norms": norms})
    norms = [[1, float("nan"), 1.0, 1.0]]
    runs.append(runs[0] | {"method": "l2reg", "last": {}, "diverged": "at step 7", "norms": norms})
    path.write_text(json.dumps({"trials": runs[:3], "runs": runs}))
    return path


def pair_file(path: Path) -> Path:
    """A run of each of three methods: differences without intervals."""
    found = {record["method"]: record for record in json.loads(results_file(path).read_text())["runs"][:6]}
    for method, recall in (("none", 0.592), ("sec", 0.647), ("sec-relative", 0.692)):
        found[method]["last"] |= {"recall@1": recall}
    path.write_text(json.dumps({"runs": list(found.values()), "trials": []}))
    return path


def simclr_file(path: Path, finals: bool = True) -> Path:
    """Table 5: k-NN on the way, the probe at the end, and trials on held-out images that call them test images."""
    records = []
    for method, base in (("none", 0.7), ("sec", 0.72)):
        for seed in range(2):
            fields = {"seed": str(seed), "validation.held_out": "0.1", "validation.only": "true"}
            fields |= {"constraint.eta": "0.25"} if method == "sec" else {}
            recipe = options.to_dict(find("simclr-cifar10" + "-sec" * (method == "sec"), fields))
            tests = [{"step": step, "knn": base - 0.2 + step / 1000 + seed / 50} for step in (0, 50, 100)]
            tests[-1] |= {"probe_top1": base + seed / 50, "probe_top5": 0.9, "probe_best_top1": 0.8}
            tests[-1] |= {"norm_mean": 3.0 + seed, "norm_variance": 0.5 + seed, "norm_cv": 0.2}
            record = {"cell": "simclr-cifar10", "method": method, "recipe": recipe, "last": tests[-1], "tests": tests}
            norms = [[step, 1 / step, 3.0 + seed, 0.5 + seed] for step in (50, 100)]
            records.append(record | {"tested": "test images, not trained on", "norms": norms})
    runs = [one | {"recipe": one["recipe"] | {"validation": {"kind": "Validation"}}} for one in records]
    path.write_text(json.dumps({"trials": records, "runs": runs * finals}))
    return path


def faces_file(path: Path) -> Path:
    """Table 4: two sets of pairs, identification among all distractors and one set, and what the norm predicts."""
    runs = []
    for method, base in (("none", 0.7), ("sec", 0.72), ("sec-relative", 0.69)):
        for seed in range(2):
            recipe = options.to_dict(find("lfw-cosface" + f"-{method}" * (method != "none"), {"seed": str(seed)}))
            value = base + seed / 50
            last = {"accuracy": value, "cfp_fp": value - 0.1, "cfp_ff": value + 0.1, "rank1@singles": 0.3}
            last |= {"rank1@1000": 0.2 + value / 4, "rank1@10000": value / 2, "rank1_norm_auroc": 1 - value}
            for name, step in (("cfp_fp", 0.01), ("cfp_ff", 0.11)):
                last |= {f"{name}_auc": value + step, f"{name}_tar@0.01": value / 3, f"{name}_norm_auroc": value - step}
            last |= {"norm_mean": 3.0, "norm_variance": 0.5, "norm_cv": 0.2}
            runs.append({"cell": "lfw-cosface", "method": method, "recipe": recipe, "last": last, "norms": []})
    path.write_text(json.dumps({"trials": [], "runs": runs}))
    return path


def norms_file(path: Path) -> Path:
    """What NormMonitor writes in somebody's loop, of two runs: one whose norms spread, and one with SEC."""
    for spread in (0.6, 0.1):
        generator = torch.Generator().manual_seed(0)
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        monitor = NormMonitor(optimizer, file=path, every=4, constrained=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in range(12):
                draw = torch.randn(30, 9, generator=generator)
                embeddings = (draw[:, :8] * torch.exp(spread * draw[:, 8:])).requires_grad_() * 2
                monitor(embeddings)
                embeddings.square().sum().backward()
                if step % 4 == 3:
                    monitor.probe(embeddings, step)
            with torch.no_grad():
                monitor(embeddings * 1)
            monitor.close()
    return path


def unlabeled(folder: Path) -> Path:
    """A run on a flat folder: one class, and nothing measured but the norms."""
    write_run(folder, 0.5, 0)
    arrays = dict(np.load(folder / "test_embeddings.npz"))
    arrays |= {"labels": np.zeros(len(arrays["labels"]), int), "classes": np.array(["photos"])}
    np.savez(folder / "test_embeddings.npz", **arrays)
    norms = {"norm_mean": 4.0, "norm_variance": 0.25, "norm_cv": 0.125}
    result = json.loads((folder / "result.json").read_text())
    result |= {"last": norms, "oracle": norms, "tested": "the images trained on"}
    (folder / "result.json").write_text(json.dumps(result))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()[1:-1]]
    lines += [{"step": step, "kind": "test"} | norms for step in (0, 20)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder

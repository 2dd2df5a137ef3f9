"""Train two commits on one machine and compare their results in bits.

`python tools/compare.py [before] [after]` makes a worktree of each commit and runs the same small recipes in both, with
this interpreter. Loss curves, metrics, snapshots, embeddings, weights and optimizer states are compared. `.` as a
commit is the working tree as it is. It ends with a table, and with exit code 1 if anything differs.
"""

import argparse
import io
import json
import math
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from small_data import make_data

BEFORE = "ea17ea5b7f13454c6b5f50ab3ac08617f3358a63"  # the tag before-redesign, which a clone may not have
REPOSITORY = Path(__file__).resolve().parents[1]
STEPS = 20
STOPPED = 12  # where the run that is resumed was stopped; its last evaluation was before that

ALLOWED = {
    "optimiser -> optimizer": "a key of checkpoint.pt",
    "alarm -> warning": "a kind and a key of metrics.jsonl",
    "the text of warnings": "wording; step and name of a warning are compared",
    "warnings that norms spread": "from a coefficient of variation of 0.2, it was 0.3",
    "recipe, versions, command, times": "not compared: wording, layout and clock",
}
RENAMED = {"optimiser": "optimizer", "alarm": "warning"}

SMALL = {
    "model.backbone": "small_cnn", "model.dim": 16, "loop.steps": STEPS, "loop.eval_every": 10, "loop.save_every": 10,
    "loop.log_every": 1, "loop.snapshot_every": 10, "loop.snapshot_images": 20, "loop.workers": 0,
}  # fmt: skip
BY_CLASS = {"batches.size": 12, "batches.per_class": 3}
PHOTOS = {"data.root": "../data/photos", "data.size": 24, "data.shorter": 28, **BY_CLASS}
RENDERED = {"data.classes": 24, "data.per_class": 6, "data.size": 12, **BY_CLASS}
PACKED = {
    "data.root": "../data/birds", "data.size": 24, "data.shorter": 28, "data.pack": "packed",
    "data.allow_missing": True, "model.freeze_bn": False, **BY_CLASS,
}  # fmt: skip
FACES = {
    "data.root": "../data/people", "data.pairs": "mine", "data.pairs_root": "../data/pairs",
    "data.probes": "../data/probes", "data.distractors": "../data/others", "batches.size": 8, "loop.unit": "steps",
}  # fmt: skip
VIEWS = {"batches": "Shuffled", "batches.size": 8, "batches.views": 2, "loss": "NTXent"}
RELATIVE = {"constraint.eta": 2, "constraint.relative": True}
RECIPES = {
    "triplet, none, folder": ("photos", PHOTOS | {"loss": "Triplet"}),
    "semi-hard, SEC, folder, worker": ("photos", PHOTOS | {
        "loss": "SemiHard", "constraint.eta": 0.5, "loop.workers": 1, "optimiser.lr": 2e-3,
        "optimiser.backbone_lr": 1e-3}),
    "N-pair, SEC-EMA, rendered": ("rendered", RENDERED | {
        "loss": "NPair", "batches.per_class": 2, "constraint.eta": 0.5, "constraint.radius": "ema",
        "constraint.rho": 0.1}),
    "multi-similarity, initial, folder": ("photos", PHOTOS | {
        "constraint.eta": 0.5, "constraint.radius": "initial", "schedule": "MultiStep", "schedule.at": "0.3,0.6"}),
    "ArcFace, L2-reg, faces": ("faces-arcface", FACES | {"constraint.eta": 1e-3, "constraint.radius": 0}),
    "sampled CosFace, relative, rendered": ("rendered", RENDERED | RELATIVE | {
        "loss": "CosFace", "loss.scale": 8, "classes.rate": 0.5, "optimiser": "SGD", "optimiser.lr": 0.05}),
    "Proxy-Anchor, balanced, packed": ("cub200-proxyanchor", PACKED | {
        "constraint.balanced": True, "constraint.eta": 0, "optimiser.class_lr": 0.01}),
    "SimCLR, SEC with ramp, unlabelled": ("rendered", VIEWS | {
        "data": "Unlabelled", "data.root": "../data/photos", "data.size": 24, "data.shorter": 28, "model.head": "mlp",
        "constraint.eta": 0.5, "constraint.ramp": "0,1", "optimiser": "SGD", "optimiser.lr": 0.01,
        "schedule": "Cosine", "schedule.warmup": 0.1}),
    "multi-similarity, relative, packed": ("cub200-ms", PACKED | RELATIVE | {"data.held_out": 4, "loop.clip": 1}),
    "SupCon, radius 2, rendered, float64": ("rendered", RENDERED | {
        "loss": "SupCon", "constraint.eta": 0.5, "constraint.radius": 2, "loop.precision": "float64"}),
    "SimCLR, none, CIFAR": ("simclr-cifar10", VIEWS | {
        "data.root": "../data", "optimiser.lr": 0.1, "loop.unit": "steps", "loop.compile": False}),
    "sharded ArcFace, SEC-EMA, two ranks": ("rendered", RENDERED | {
        "loss": "ArcFace", "loss.scale": 8, "classes.shard": True, "constraint.eta": 0.5,
        "constraint.radius": "ema"}),
}  # fmt: skip
OLD = "semi-hard, SEC, folder, worker"  # the recipe that the older commit begins and both resume


def main() -> int:
    """Run both commits, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", default=BEFORE, help="a commit (default: before the redesign)")
    parser.add_argument("after", nargs="?", default="HEAD", help="a commit, or . for the working tree (default: HEAD)")
    parser.add_argument("--only", default="", help="only recipes whose name contains this; no old run folder")
    parser.add_argument("--keep", type=Path, help="a folder that does not exist, to keep all run folders in")
    options = parser.parse_args()
    names = [name for name in RECIPES if options.only in name]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="compare-") as place:
        folder = options.keep.absolute() if options.keep else Path(place)
        (folder / "before").mkdir(parents=True)
        (folder / "after").mkdir()
        make_data(folder / "data")
        with tree(options.before, Path(place) / "tree-before") as old, tree(options.after, Path(place) / "tree") as new:
            sides = {folder / "before": old, folder / "after": new}
            found = {name: [] for name in names}
            run_all(sides, [command(name) for name in names])
            for name in names:
                found[name] = run_differences(folder / "before" / slug(name), folder / "after" / slug(name))
            if not options.only:
                found |= old_folders(folder, sides)
    return report(found, options.before, options.after, time.monotonic() - began)


def report(found: dict[str, list[str]], before: str, after: str, seconds: float) -> int:
    """Print what was compared and what differs; 1 if anything does."""
    print(f"\n{before} against {after}, {seconds:.0f} s. Allowed to differ:")
    for what, why in ALLOWED.items():
        print(f"  {what}: {why}")
    width = max(map(len, found))
    for name, differences in found.items():
        print(f"{name:{width}}  {'DIFFERS' if differences else 'same bits'}")
        for line in differences[:6]:
            print(f"    {line}")
    bad = sum(map(bool, found.values()))
    print(f"{len(found) - bad} of {len(found)} the same in bits")
    return int(bad > 0)


# ---------------------------------------------------------------- the two sides


@contextmanager
def tree(commit: str, place: Path) -> Iterator[Path]:
    """A worktree of a commit while it is needed; the working tree itself for `.`."""
    if commit == ".":
        yield REPOSITORY
        return
    subprocess.run(["git", "worktree", "add", "-q", "--detach", place, commit], cwd=REPOSITORY, check=True)
    try:
        yield place
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", place], cwd=REPOSITORY, check=True)


def slug(name: str) -> str:
    """A folder's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def command(name: str) -> dict[str, Any]:
    """What trains a recipe: the words after `isosphere`, and the number of processes."""
    recipe, changes = RECIPES[name]
    fields = [word for key, value in (SMALL | changes).items() for word in (f"--{key}", str(value))]
    return {"words": ["train", recipe, "--out", slug(name), *fields], "ranks": 2 if "two ranks" in name else 1}


def run_all(sides: dict[Path, Path], commands: list[dict[str, Any]]) -> None:
    """The commands one after another in one process a side; both sides at the same time."""
    started = []
    for folder, source in sides.items():
        environment = os.environ | {"PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "300"}
        environment["ISOSPHERE_CACHE"] = str(folder / "cache")
        words = [sys.executable, str(Path(__file__).resolve()), "--worker", json.dumps(commands)]
        with open(folder / "log.txt", "a", encoding="utf-8") as log:
            started.append(subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log))
    codes = [process.wait() for process in started]
    for folder, code in zip(sides, codes, strict=True):
        if code:
            print(f"{folder.name} ended with exit code {code}:\n{(folder / 'log.txt').read_text()[-3000:]}")


def work(commands: list[dict[str, Any]]) -> None:
    """What a side's process does; `isosphere` is found by PYTHONPATH."""
    import torch

    from isosphere.data import cifar

    torch.set_num_threads(1)
    cifar.COUNTS.update(train=100, test=20)  # what `make_data` draws
    for order in commands:
        words = list(map(str, order["words"]))
        if order.get("ranks", 1) > 1:
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
            called = [*launcher, str(order["ranks"]), "-m", "isosphere", *words, "--device", "cpu"]
            code, shown = subprocess.run(called, stdout=sys.stderr).returncode, ""
        else:
            code, shown = in_process([*words, "--device", "cpu"], order.get("stop_at", 0))
        print(f"{' '.join(words[:4])}: exit code {code}", file=sys.stderr, flush=True)
        if "keep" in order:
            Path(order["keep"]).write_text(shown, encoding="utf-8")


def in_process(words: list[str], stop_at: int = 0) -> tuple[int, str]:
    """`isosphere ...` without a new interpreter: its exit code and stdout; stopped by a signal after a step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps, shown = [0], io.StringIO()

    def count(*_: object) -> None:
        steps[0] += 1
        if steps[0] == stop_at:
            signal.raise_signal(signal.SIGTERM)

    hook, before = register_optimizer_step_post_hook(count), sys.argv
    sys.argv = ["isosphere", *words]
    try:
        with redirect_stdout(shown), redirect_stderr(sys.stderr):
            runpy.run_module("isosphere", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return int(end.code or 0), shown.getvalue()
    finally:
        hook.remove()
        sys.argv = before
    return 0, shown.getvalue()


def old_folders(folder: Path, sides: dict[Path, Path]) -> dict[str, list[str]]:
    """Runs written by the older commit: resumed, evaluated and embedded by both."""
    before, after = sides
    stopped = command(OLD)
    stopped["words"][3] = "stopped"
    run_all({before: sides[before]}, [stopped | {"stop_at": STOPPED}])
    names = ("ArcFace, L2-reg, faces", "SimCLR, SEC with ramp, unlabelled", "Proxy-Anchor, balanced, packed")
    faces, views, packed = map(slug, names)
    for name in ("stopped", faces, views, packed):
        for side in sides:
            if (before / name).is_dir():  # one that is not there is reported as such where it was trained
                shutil.copytree(before / name, side / f"old-{name}")
    commands: list[dict[str, Any]] = [{"words": ["train", "--resume", "old-stopped"]}]
    for name in ("stopped", faces, views, packed):
        commands.append({"words": ["evaluate", f"old-{name}"], "keep": f"evaluated-{name}.txt"})
    commands.append({"words": ["evaluate", f"old-{views}", "--probe"], "keep": "evaluated-probe.txt"})
    for name in ("stopped", faces, views):
        commands.append({"words": ["embed", f"old-{name}", "../data/probes", "--out", f"embedded-{name}.npy"]})
    commands.append({"words": ["embed", f"old-{views}", "../data/probes", "--out", "features.npy", "--features"]})
    run_all(sides, commands)
    unbroken = run_differences(before / slug(OLD), before / "old-stopped")
    found = {
        "old folder resumed": run_differences(before / "old-stopped", after / "old-stopped")
        + [f"unlike the unbroken run of the older commit: {line}" for line in unbroken],
        "old folder evaluated": [],
        "old folder embedded": [],
    }
    for path in sorted(before.glob("evaluated-*.txt")):
        numbers = [re.findall(r"\d+\.\d+", text(side / path.name)) for side in sides]
        if not numbers[0]:
            found["old folder evaluated"].append(f"{path.name}: the older commit printed nothing")
        found["old folder evaluated"] += differences(*numbers, path.stem)
    for path in sorted([*before.glob("embedded-*"), *before.glob("features*")]):
        found["old folder embedded"] += file_differences(path, after / path.name)
    if len(list(before.glob("embedded-*.npy"))) != 6:  # embeddings and labels of three runs
        found["old folder embedded"].append("the older commit wrote other files")
    return found


# ---------------------------------------------------------------- what is compared


def text(path: Path) -> str:
    """A file's text; nothing if it is not there."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def run_differences(before: Path, after: Path) -> list[str]:
    """What differs between two run folders, a line each."""
    missing = [f"{side.parent.name}: no {name}" for side in (before, after) for name in ("result.json", "checkpoint.pt")
               if not (side / name).is_file()]  # fmt: skip
    if missing:
        return missing
    found = []
    for kind in ("train", "test", "turn", "warning"):
        lines = [curve(side, kind) for side in (before, after)]
        if kind in ("train", "test") and not lines[0]:
            found.append(f"no {kind} lines in {before}")
        found += differences(*lines, kind)
    results = [json.loads(text(side / "result.json")) for side in (before, after)]
    for part in ("last", "oracle"):
        found += differences(*(plain(result[part]) for result in results), part)
    states = [weights(side) for side in (before, after)]
    found += differences(*states, "checkpoint")
    for path in sorted([before / "test_embeddings.npz", *before.glob("snapshots/step-*.npz")]):
        found += file_differences(path, after / path.relative_to(before))
    return found


def curve(run: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of a kind in metrics.jsonl; of warnings without their text."""
    lines = [plain(json.loads(line)) for line in text(run / "metrics.jsonl").splitlines()]
    lines = [line | {"kind": RENAMED.get(line["kind"], line["kind"])} for line in lines]
    lines = [line for line in lines if line.get("warning") != "spreading"]
    return [{k: v for k, v in line.items() if k != "text"} for line in lines if line["kind"] == kind]


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Values with old names of keys as they are now."""
    return {RENAMED.get(key, key): value for key, value in values.items()}


def weights(run: Path) -> dict[str, Any]:
    """All of a checkpoint that training made."""
    import torch

    state = plain(torch.load(run / "checkpoint.pt", weights_only=True))
    parts = ("model", "criterion", "constraint", "optimizer", "step", "finished", "classes", "random")
    return {part: state.get(part) for part in parts}


def file_differences(before: Path, after: Path) -> list[str]:
    """What differs between two arrays, archives of arrays or texts."""
    import numpy as np

    if not after.is_file():
        return [f"no {after.name}"]
    if before.suffix == ".txt":
        return differences(text(before).splitlines(), text(after).splitlines(), before.name)
    arrays = [np.load(path) for path in (before, after)]
    if before.suffix == ".npz":
        arrays = [{name: held[name] for name in held.files} for held in arrays]
    return differences(*arrays, before.name)


def differences(before: Any, after: Any, where: str) -> list[str]:
    """Lines that say where two nested values differ in type, shape or bits."""
    import numpy as np
    import torch

    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        return differences(before.numpy(), after.numpy(), where)
    if type(before) is not type(after) and not (isinstance(before, dict) and isinstance(after, dict)):
        return [f"{where}: {type(before).__name__} -> {type(after).__name__}"]
    if isinstance(before, np.ndarray):
        if before.dtype != after.dtype or before.shape != after.shape:
            return [f"{where}: {before.dtype}{before.shape} -> {after.dtype}{after.shape}"]
        if before.tobytes() == after.tobytes():
            return []
        return [f"{where}: {(before != after).sum()} of {before.size} values"]
    if isinstance(before, dict):
        found = [f"{where}.{key}: only before" for key in before if key not in after]
        found += [f"{where}.{key}: only after" for key in after if key not in before]
        for key in before:
            found += differences(before[key], after[key], f"{where}.{key}") if key in after else []
        return found
    if isinstance(before, list | tuple):
        found = [] if len(before) == len(after) else [f"{where}: {len(before)} -> {len(after)} entries"]
        pairs = enumerate(zip(before, after, strict=False))
        return found + [line for n, pair in pairs for line in differences(*pair, f"{where}[{n}]")]
    same = before == after or (isinstance(before, float) and math.isnan(before) and math.isnan(after))
    return [] if same else [f"{where}: {before!r} -> {after!r}"]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(json.loads(sys.argv[2]))
    else:
        sys.exit(main())

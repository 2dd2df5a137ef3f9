"""The core needs torch and numpy, on any system: what is blocked here is missing there."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from isosphere import errors
from test_layout import CORE, SOURCE, part_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(SOURCE.parent)}

BLOCK = """
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

class Thin:
    # torch's own requirements may be found; all else that Python does not bring may not
    allowed = set(sys.stdlib_module_names) | {
        "isosphere", "torch", "torchgen", "functorch", "numpy", "typing_extensions", "sympy", "mpmath", "networkx",
        "jinja2", "markupsafe", "fsspec", "filelock", "triton",
    }

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.allowed or name.startswith("_sysconfigdata"):
            return PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Thin()]
"""

IMPORT = """
from importlib import import_module
for name in {}:
    import_module(name)
"""

USE = """
import torch
import isosphere
from isosphere import distributed, errors, files, functional, losses, metrics, monitor, samplers, sphere

labels = torch.arange(12) % 3
raw = torch.randn(12, 8, requires_grad=True)

def learns(loss):
    loss.backward()
    assert raw.grad.isfinite().all() and raw.grad.any()
    raw.grad = None

for kind in (losses.TripletLoss, losses.SemiHardTripletLoss, losses.NPairLoss, losses.MultiSimilarityLoss,
             losses.ContrastiveLoss, losses.SupConLoss):
    learns(kind()(raw, labels))
learns(losses.NTXentLoss()(raw, torch.arange(12) % 6))
learns(losses.ProxyAnchorLoss(8, 3)(raw, labels))
learns(losses.LinearClassifier(8, 3)(raw, labels))
for margin in (losses.NormFace(), losses.SphereFace(), losses.CosFace(), losses.ArcFace()):
    for head in (losses.CosineClassifier, losses.ShardedClassifier):
        learns(head(8, 3, margin)(raw, labels))
for radius in ("batch", "ema", "initial", 2.0):
    learns(losses.SEC(0.1, radius=radius)(raw))
learns((losses.balanced_directions(raw) * torch.randn(12, 8)).sum())
learns(functional.triplet(raw, labels) + functional.norm_penalty(raw))

network = torch.nn.Linear(8, 8)
optimizer = torch.optim.Adam(network.parameters())
watch = monitor.NormMonitor(optimizer, every=1, file="norms.jsonl")
embeddings = network(raw.detach())
watch(embeddings)
functional.triplet(embeddings, labels).backward()
optimizer.step()
watch.close()

assert len(samplers.ClassBatches(labels.tolist(), 6, 2, seed=0).indices(0)) == 6
assert samplers.ShuffledBatches(12, 4, seed=0).per_epoch == 3
assert distributed.gather(raw, labels)[0].shape == (12, 8)

points = raw.detach()
assert 0 <= metrics.retrieval_metrics(points, labels)["recall@1"] <= 1
assert 0 <= metrics.clustering_metrics(points, labels)["nmi"] <= 1
assert "accuracy" in metrics.verification(points, points.flip(0), labels == labels.flip(0), fold=2)
assert metrics.identification(points, labels, points + 1, counts=12)
assert metrics.linear_probe(points, labels, points, labels, epochs=1)
assert metrics.knn_accuracy(points, labels, points, labels, k=1)

try:
    isosphere.load_run
except errors.MissingExtra as error:
    assert error.extra == "train" and error.what == "isosphere.load_run"
else:
    raise AssertionError("what is blocked was found")
"""


def run(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_core_works_with_torch_and_numpy_alone(tmp_path):
    run(BLOCK + USE, tmp_path)
    assert (tmp_path / "norms.jsonl").read_text()


def modules(core: bool) -> list[str]:
    paths = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__main__.py")
    names = [(part_of(path), ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)) for path in paths]
    return [name.removesuffix(".__init__") for part, name in names if part in CORE or (part != "__init__" and not core)]


def test_every_module_of_the_core_is_imported_with_torch_and_numpy_alone(tmp_path):
    run(BLOCK + IMPORT.format(modules(core=True)), tmp_path)


ELSEWHERE = """
import os, sys
import torch  # which knows by sys.platform what it may use
for name in ("fcntl", "resource", "pwd"):
    sys.modules[name] = None
for name in ("sched_getaffinity", "register_at_fork"):
    delattr(os, name)
"""

TRAIN = """
import torch
from isosphere.inference import load_run
from isosphere.train.loop import fit
from tiny import tiny_recipe

recipe = tiny_recipe(changes={"loop.steps": 2, "loop.eval_every": 2, "loop.workers": 0})
assert fit(recipe, "runs/tiny", "cpu")["recipe"]["loop"]["steps"] == 2
assert load_run("runs/tiny", "cpu").model is not None
"""


def test_training_works_where_the_system_has_less(tmp_path):
    paths = f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    run(ELSEWHERE + paths + IMPORT.format(modules(core=False)) + TRAIN, tmp_path)


def test_the_command_line_says_what_to_install(tmp_path):
    """Help needs nothing; a command that cannot run ends in one line."""

    def line(*words: str) -> str:
        return BLOCK + f"sys.argv = {['isosphere', *words]}; from isosphere.cli import run; raise SystemExit(run())"

    assert "train" in run(line("--help"), tmp_path)
    assert "--resume" in run(line("train", "--help"), tmp_path)
    code = line("train", "rendered", "--loop.steps", "1")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "pip install 'isosphere[train]'" in done.stderr and not list(tmp_path.iterdir())


def test_extras_bring_what_errors_say():
    """Names of packages that are imported under another one, and the extras of each in pyproject.toml."""
    imported = {"pillow": "PIL", "scikit-learn": "sklearn", "faiss-cpu": "faiss"}
    assert {re.split("[>=]", line)[0] for line in PROJECT["dependencies"]} == {"torch", "numpy"}
    for extra, packages in errors.EXTRAS.items():
        lines = [re.split("[>=]", line)[0] for line in PROJECT["optional-dependencies"][extra]]
        brought = {imported.get(name, name.replace("-", "_")) for name in lines if not name.startswith("isosphere")}
        assert brought == set(packages) - {"pytorch_lightning"}


@pytest.mark.parametrize("name, extra", [("PIL.Image", "train"), ("sklearn", "oracles"), ("no_such_module", None)])
def test_a_missing_package_names_its_extra(name, extra):
    cause = ModuleNotFoundError(f"No module named {name!r}", name=name)
    found = errors.missing_extra(cause, "this")
    assert (found is cause) if extra is None else (found.what, found.extra) == ("this", extra)
    with pytest.raises(errors.MissingExtra) as raised:
        errors.need("no_such_module.part", "bench", "that")
    assert (raised.value.what, raised.value.package, raised.value.extra) == ("that", "no_such_module", "bench")
    assert errors.need("json", "bench", "that") is import_module("json")

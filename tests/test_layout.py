"""The promise of the layout: who may import whom, quick help, lazy names, no address of a machine."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import isosphere

SOURCE = Path(isosphere.__file__).parent
CORE = {
    "errors", "files", "locks", "sphere", "functional", "losses", "metrics", "samplers", "distributed", "grad_cache",
    "monitor",
}  # fmt: skip
EVERYBODY = {"errors", "files", "locks"}  # may be imported anywhere
ALLOWED = {
    "errors": {"errors"},
    "files": set(),
    "locks": {"errors"},
    "grad_cache": {"distributed", "losses", "sphere"},
    "sphere": set(),
    "samplers": set(),
    "distributed": {"losses", "sphere"},
    "adapters": {"adapters", "monitor", "losses", "sphere"},
    "runs": {"runs", "recipes", "errors", "tensor_files"},
    "tensor_files": set(),
    "losses": {"losses", "sphere"},
    "metrics": {"metrics", "sphere"},
    "data": {"data", "distributed", "errors", "locks", "samplers", "terminal"},
    "models": {"errors", "models", "tensor_files"},
    "recipes": {"recipes"},
    "functional": {"losses", "sphere"},
    "front": {"distributed", "inference", "recipes", "runs", "sphere", "terminal", "train"},
    "terminal": set(),
    "gallery": {"data", "distributed", "gallery", "inference", "metrics", "recipes", "report", "runs"},
    "inference": {
        "data", "distributed", "errors", "files", "inference", "metrics", "models", "recipes", "runs", "samplers",
        "sphere", "tensor_files", "terminal",
    },  # fmt: skip
    "serve": {"data", "gallery", "inference", "report", "serve", "sphere"},
    "export": {"data", "export", "inference", "metrics", "recipes", "sphere"},
    "train": {
        "train", "inference", "sphere", "losses", "metrics", "data", "models", "recipes", "monitor", "runs",
        "distributed", "samplers", "errors", "locks", "terminal",
    },  # fmt: skip
    "monitor": {"monitor", "losses", "sphere"},
    "paper": {
        "paper", "data", "inference", "recipes", "report", "runs", "train", "distributed", "locks", "metrics", "sphere",
        "terminal",
    },  # fmt: skip
    "report": {"report", "runs", "sphere", "metrics", "recipes"},
}
FREE = {"__init__", "__main__", "cli"}


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Absolute names of all modules that a file imports, wherever in it."""
    package = ["isosphere", *path.relative_to(SOURCE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "isosphere" else {module}
    return found


def test_every_file_has_a_place():
    assert {part_of(path) for path in SOURCE.rglob("*.py")} <= set(ALLOWED) | FREE


@pytest.mark.parametrize(
    "path", [p for p in sorted(SOURCE.rglob("*.py")) if part_of(p) in ALLOWED], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_keep_the_layout(path):
    part = part_of(path)
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("isosphere.")}
    ours -= EVERYBODY if part != "errors" else set()
    assert ours <= ALLOWED[part], f"{path.name} imports {ours - ALLOWED[part]}"
    if part == "recipes":
        assert not any(name.split(".")[0] in ("torch", "numpy") for name in imports(path))


def test_the_core_imports_nothing_above_it():
    assert all(ALLOWED[part] <= CORE for part in CORE)


@pytest.mark.parametrize("part", sorted(CORE))
def test_the_core_imports_torch_and_numpy_alone(part):
    known = sys.stdlib_module_names | {"torch", "numpy", "isosphere"}
    found = {name.split(".")[0] for path in SOURCE.rglob("*.py") if part_of(path) == part for name in imports(path)}
    assert found <= known


def test_the_metric_registry_needs_no_torch():
    assert not {name.split(".")[0] for name in imports(SOURCE / "metrics" / "registry.py")} & {"torch", "numpy"}


def test_there_is_no_utils():
    assert not [path for path in SOURCE.rglob("*.py") if "util" in path.name]


def used() -> float:
    """Seconds of CPU time that the processes which this one started have taken: others may use the CPUs, too."""
    took = os.times()
    return took.children_user + took.children_system


def test_help_is_quick_and_needs_no_torch():
    code = "import sys; sys.argv = ['isosphere', '--help']; from isosphere.cli import main\n"
    code += "try: main()\nfinally: print('torch' in sys.modules)"
    times = []
    for _ in range(3):
        begin = used()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        times.append(used() - begin)
    assert done.stdout.strip().endswith("False") and "train" in done.stdout
    assert min(times) < 1.0


def test_every_public_name_can_be_had():
    for name in isosphere.__all__:
        assert getattr(isosphere, name) is not None
    with pytest.raises(AttributeError) as raised:
        isosphere.Sec  # noqa: B018
    assert raised.value.name == "Sec"

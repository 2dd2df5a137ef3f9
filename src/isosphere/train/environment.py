"""What a run was made by: versions, hardware, git revision and command, as its result records them."""

import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware, git revision and command of this process."""
    names = ("isosphere", "torch", "torchvision", "timm", "numpy")
    hardware = {"machine": platform.machine(), "threads": torch.get_num_threads()}
    if device.type == "cuda":
        hardware["gpu"] = torch.cuda.get_device_name(device)
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in names},
        "hardware": hardware,
        "git": git_revision(),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # run from the source tree, or not there
        return None


def git_revision() -> str | None:
    """The commit this package runs from, with "+" if files were changed since; None outside a checkout."""

    def ask(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return ask("rev-parse", "HEAD") + ("+" if ask("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None

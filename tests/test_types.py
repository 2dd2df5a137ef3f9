"""Types: a checker finds nothing in src, and in a user's script only what is wrong there."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_types_of_the_source_and_of_a_users_script_agree():
    command = [sys.executable, "-m", "mypy", "src", "tests/user_script.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout

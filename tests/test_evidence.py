import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_tables_of_the_evidence_page_are_what_the_results_say():
    done = subprocess.run([sys.executable, ROOT / "tools" / "evidence.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or "write them again: python tools/evidence.py"

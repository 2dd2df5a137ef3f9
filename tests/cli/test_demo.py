"""`isosphere demo`: two runs, a table, what it shows, a search and a page."""

import re

from commands import isosphere


def test_the_demo_trains_compares_searches_and_reports(tmp_path):
    done = isosphere("demo", "--steps", "1", folder=tmp_path)
    for word in ("demo-plain ", "demo-even-norms ", "R@8", "MAP@R", "NMI", "F1", "variance"):
        assert word in done.stdout
    table = {row.split()[0]: row.split()[1:] for row in done.stdout.splitlines() if row.strip().startswith("demo-")}
    shown = [float(table["demo-even-norms"][place]) - float(table["demo-plain"][place]) for place in (4, 0)]
    changes = [float(number) for number in re.findall(r"(?:MAP@R|R@1) ([+-][\d.]+)", done.stdout)]
    assert all(abs(one - other) < 0.11 for one, other in zip(shown, changes, strict=True)), "MAP@R, then R@1"
    found = [int(right) for right in re.findall(r": (\d) of 5 right", done.stdout)]
    assert len(found) == 6 and all(0 <= right <= 5 for right in found)
    for name in ("demo-plain", "demo-even-norms"):
        assert f"run folder: runs/{name}" in done.stdout and (tmp_path / "runs" / name / "result.json").exists()
    page = (tmp_path / "runs" / "demo-report.html").read_text(encoding="utf-8")
    assert "open in a browser: runs/demo-report.html" in done.stdout and "2 runs compared" in page

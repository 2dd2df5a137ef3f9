"""`isosphere demo`: two runs, a table and a page."""

from commands import isosphere


def test_the_demo_compares_two_runs(tmp_path):
    done = isosphere("demo", "--steps", "1", folder=tmp_path)
    for word in ("demo-rendered ", "demo-rendered-sec ", "R@8", "MAP@R", "NMI", "F1", "variance"):
        assert word in done.stdout
    for name in ("demo-rendered", "demo-rendered-sec"):
        assert f"run folder: runs/{name}" in done.stdout and (tmp_path / "runs" / name / "result.json").exists()
    page = (tmp_path / "runs" / "demo-report.html").read_text(encoding="utf-8")
    assert "open in a browser: runs/demo-report.html" in done.stdout and "2 runs compared" in page

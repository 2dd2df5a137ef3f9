"""Every example runs as it stands, and is short."""

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as pyplot
import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*words: object, folder: Path) -> str:
    environment, command = os.environ | {"OMP_NUM_THREADS": "1"}, [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path):
    assert len(path.read_text().splitlines()) <= 42


def test_sec_in_your_loop(tmp_path):
    lines = run(EXAMPLES / "sec_in_your_loop.py", folder=tmp_path).splitlines()
    first, last = (float(line.split("variance")[1]) for line in (lines[0], lines[-1]))
    assert last < first / 2, "SEC narrows the norms"


def test_sec_with_pml(tmp_path):
    lines = run(EXAMPLES / "sec_with_pml.py", folder=tmp_path).splitlines()
    assert float(lines[-1].split()[-1]) < float(lines[0].split()[-1])


def test_monitor_plain(tmp_path):
    lines = run(EXAMPLES / "monitor_plain.py", folder=tmp_path).splitlines()
    assert lines[0].startswith("eta 0:") and lines[3].startswith("eta 0.5:")
    without, with_sec = (float(line.split("gradient ")[1].split("%")[0]) for line in (lines[1], lines[4]))
    assert without == 0 < with_sec, "only SEC has a radial gradient"
    assert len((tmp_path / "norms-eta0.jsonl").read_text().splitlines()) >= 304


def test_monitor_lightning(tmp_path):
    lines = run(EXAMPLES / "monitor_lightning.py", folder=tmp_path).splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("step")] == [f"step {n}" for n in range(1, 101, 20)]


def test_sec_under_ddp(tmp_path):
    launch = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    assert "step 100" in run(*launch, EXAMPLES / "sec_under_ddp.py", folder=tmp_path)


@pytest.mark.parametrize(
    "name, wanted",
    [("your_own_photos", "folder"), ("face_lists", "LFW CFP [CELEBA]"), ("face_frames", "FACES OUT")],
)
def test_without_arguments_an_example_shows_its_usage(name, wanted, tmp_path):
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: ") and wanted in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr and not done.stdout


def test_your_own_photos(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (10, 4, 40, 40, 3)).astype(np.uint8)
    for label in range(10):
        (tmp_path / "photos" / str(label)).mkdir(parents=True)
        for number in range(4):
            Image.fromarray(pixels[label, number]).save(tmp_path / "photos" / str(label) / f"{number}.png")
    assert "recall@1" in run(EXAMPLES / "your_own_photos.py", "photos", 3, folder=tmp_path)
    assert "recall@1" in run(EXAMPLES / "your_own_photos.py", "photos", 2, folder=tmp_path), "and again, as one likes"
    results = [tmp_path / "runs" / f"photos-sec-seed0{number}" / "result.json" for number in ("", "-2")]
    assert [json.loads(path.read_text())["recipe"]["loop"]["steps"] for path in results] == [3, 2]


def test_face_frames(tmp_path):
    """Squares are where they are said to be; lists come along, points in the old frames do not."""
    places = ("lfw/Ann/Ann_0001.jpg", "cfp/Data/Images/001/frontal/01.jpg", "celeba/images/000001.jpg")
    for place, size in zip(places, ((250, 250), (120, 200), (200, 260)), strict=True):
        (tmp_path / "faces" / place).parent.mkdir(parents=True)
        Image.fromarray(np.tile(np.arange(size[1], dtype=np.uint8)[:, None, None], (1, size[0], 3))).save(
            tmp_path / "faces" / place, quality=100
        )
    points = ("lfw/landmarks.txt", "cfp/Data/Fiducials/001/01.txt")
    for name in ("lfw/singles.csv", "cfp/Protocol/Pair_list_F.txt", *points):
        (tmp_path / "faces" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "faces" / name).write_text(name)
    told = run(EXAMPLES / "face_frames.py", "faces", "out", folder=tmp_path)
    assert told.count("1 photographs, 1 lists") == 2 and "celeba: 1 photographs, 0 lists" in told
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {*places, "lfw/singles.csv", "cfp/Protocol/Pair_list_F.txt"}
    tops = [float(np.asarray(Image.open(tmp_path / "out" / place))[0].mean()) for place in places]
    assert tops == pytest.approx([125 + 15 - 54, 200 - 120, 130 - 20 - 40], abs=2)
    assert all(Image.open(tmp_path / "out" / place).size == (112, 112) for place in places)


def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch):
    """Its cells are plain Python, so they run here one after another, with fewer steps. Committed outputs are whole."""
    text = (EXAMPLES / "sec_monitor_search.ipynb").read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)) and len(text) < 300_000
    assert all(output["output_type"] != "error" for cell in cells for output in cell["outputs"])
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("agg")
    names: dict = {}
    for cell in cells:
        exec("".join(cell["source"]), names)
        names["STEPS"] = 40
    assert pyplot.get_fignums() == [1, 2, 3], "characters, norms, neighbors"
    pyplot.close("all")
    assert all(row["recall@1"] > 0.1 for row in names["metrics"].values()), "chance is 0.01"
    assert names["same"].float().mean() > 5 * names["chance"]
    assert (names["cosines"].diagonal() == -1).all() and names["nearest"].values.max() <= 1 + 1e-5
    norms = {name: found.norm(dim=1) for name, found in names["embeddings"].items()}
    spreads = {name: its.std() / its.mean() for name, its in norms.items()}
    assert spreads["SEC"] < spreads["baseline"]
    for file in ("baseline.jsonl", "sec.jsonl"):
        kinds = [json.loads(line)["kind"] for line in (tmp_path / file).read_text().splitlines()]
        assert (kinds.count("train"), kinds.count("probe")) == (40, 1)
    assert "<svg" in (tmp_path / "norms.html").read_text(encoding="utf-8")

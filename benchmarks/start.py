"""How soon a run on small images takes its first step: a first start, which decodes them, and a second one.

    python benchmarks/start.py [--images 100000] [--cores 2] [--json out.json]

Class folders of JPEGs of 64 x 64 pixels are written once. Each start is a process of its own, `isosphere.train` on a
small network, from the first line of Python to the end of the first training step. The untrained network is evaluated
before that step, as in every run; one in fifty classes is for testing. Seconds are counted by stages, and those that
all processes of a start computed. Where others use the machine, the load says so, and only the latter mean much. The
exit code is 1 if the second start misses its target.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

TARGET = 10.0  # seconds to the first step of the second start
PER_CLASS, SIDE, TRAINED = 20, 64, 0.98


def photographs(folder: Path, count: int) -> None:
    """Class folders of smooth random JPEGs; PIL needs the interpreter's lock for little of it."""
    with ThreadPoolExecutor() as pool:
        for _ in pool.map(partial(_write_class, folder), range(count // PER_CLASS)):
            pass


def _write_class(folder: Path, number: int) -> None:
    import numpy as np
    from PIL import Image

    place, generator = folder / f"class{number:05d}", np.random.default_rng(number)
    place.mkdir(parents=True)
    for index, pixels in enumerate(generator.integers(0, 256, (PER_CLASS, 9, 9, 3), dtype=np.uint8)):
        image = Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        image.save(place / f"{index}.jpg", quality=90)


def start(folder: Path, begin: float) -> None:
    """One start in this process, which ends after the first step and prints its seconds since `begin`."""
    stages = {}

    def done(stage: str) -> None:
        stages[stage] = time.time() - begin

    import torch

    from isosphere.paper import find
    from isosphere.train import loop

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    done("imports")
    changes = {
        "data.root": str(folder / "images"), "data.cache": str(folder / "cache"), "data.size": "32",
        "data.shorter": "36", "data.train_fraction": str(TRAINED), "model.backbone": "small_cnn", "model.dim": "64",
        "loop.steps": "1000", "loop.save_every": "0",
    }  # fmt: skip
    run = loop.prepare(find("photos-sec", changes), torch.device("cpu"))
    done("images listed, checked and split")

    def stop(step: int, values: dict[str, float]) -> None:
        if step == 0:
            done("evaluation before the first step")
        else:
            done("first step")
            for worker in multiprocessing.active_children():  # which would hold our output open for a while
                worker.kill()
                worker.join()
            used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            found = {"seconds": stages, "cpu_seconds": sum(its.ru_utime + its.ru_stime for its in used)}
            print(json.dumps(found | {"load": os.getloadavg()[0]}), flush=True)
            os._exit(0)

    (folder / "run").mkdir(exist_ok=True)
    loop.train(run, folder / "run", loggers=[stop])
    raise AssertionError("the first step was not logged")


def timed(folder: Path, cores: int) -> dict:
    """A start in a new process on so many cores: seconds at the end of each stage, computed ones, and the load."""
    words = [sys.executable, __file__, "--child", str(folder), str(time.time())]
    mine = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, mine))
    if done.returncode:
        raise SystemExit(f"a start failed with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        start(Path(sys.argv[2]), float(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where images are, or are written; by default a temporary folder")
    parser.add_argument("--json", type=Path, help="write the result here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "images").is_dir():
            photographs(folder / "images", options.images)
        rows = [{"start": name} | timed(folder, options.cores) for name in ("first", "second")]
    for row in rows:
        stages = ", ".join(f"{stage} {its:.1f} s" for stage, its in row["seconds"].items())
        print(f"{row['start']} start: {stages}; computed {row['cpu_seconds']:.1f} s, load {row['load']:.1f}")
    seconds = rows[1]["seconds"]["first step"]
    print(f"second start: {seconds:.1f} s, target < {TARGET:g} s: {'reached' if seconds < TARGET else 'MISSED'}")
    if options.json:
        import torch

        hardware = {"device": "cpu", "cores": options.cores, "name": platform.machine()}
        versions = {"python": platform.python_version(), "torch": torch.__version__}
        size = {"images": options.images, "side": SIDE, "train_fraction": TRAINED}
        record = {"versions": versions, "hardware": hardware, "size": size, "target": TARGET, "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if seconds < TARGET else 1


if __name__ == "__main__":
    sys.exit(main())

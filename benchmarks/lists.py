"""Seconds and memory to list, split and sample the images of a Parquet file, in a fresh process.

    python benchmarks/lists.py                        20,000 rows: only shows that it runs
    python benchmarks/lists.py --rows 5000000         five million empty files are made first, and removed at the end

The list has a path, one of rows / 10 labels and one of 8 groups. That each file is there is checked, as for a run.
The exit code is 1 if five million rows take more than 30 seconds or 4 GiB.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PER_FOLDER, STEPS = 1000, 100
SECONDS, GIB = 30.0, 4.0
WRITTEN = 100_000  # rows that are made at once


def write(place: Path, rows: int) -> Path:
    """A Parquet file of so many rows, and an empty file for each."""
    import pyarrow
    from pyarrow import parquet

    file, writer = place / "list.parquet", None
    for first in range(0, rows, WRITTEN):
        numbers = range(first, min(first + WRITTEN, rows))
        paths = [f"photos/{n // PER_FOLDER:05d}/{n:08d}.jpg" for n in numbers]
        for folder in sorted({os.path.dirname(path) for path in paths}):
            os.makedirs(place / folder, exist_ok=True)
        for path in paths:
            os.close(os.open(place / path, os.O_CREAT | os.O_WRONLY, 0o644))
        # Neighbors in the list are of different classes and folders, as after a shuffle.
        order = sorted(range(len(paths)), key=lambda n: n * 7919 % len(paths))
        table = pyarrow.table({
            "path": [paths[n] for n in order],
            "label": [f"class {(first + n) % max(2, rows // 10)}" for n in order],
            "group": [str(n % 8) for n in order],
        })  # fmt: skip
        writer = writer or parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return file


def measured(file: Path) -> dict[str, float]:
    """Seconds of each part, and the peak memory of this process in GiB; imports count as memory alone."""
    from isosphere.data.images import open_images
    from isosphere.data.split import split_classes
    from isosphere.samplers import ClassBatches

    found, begin = {}, time.perf_counter()
    images = open_images(str(file))
    found["list"], begin = time.perf_counter() - begin, time.perf_counter()
    train, test = split_classes(images, seed=0)
    found["split"], begin = time.perf_counter() - begin, time.perf_counter()
    batches = ClassBatches(train.labels, 120, 4, 0)
    for step in range(STEPS):
        assert train.files[int(batches.indices(step)[0])]
    found["sample"] = time.perf_counter() - begin
    assert len(train) + len(test) == len(images) and not set(train.classes) & set(test.classes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return found | {"total": sum(found.values()), "rows": len(images), "classes": len(images.classes), "gib": peak}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where files are made; by default the system's temporary folder")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.of:
        print(json.dumps(measured(asked.of)))
        return 0
    place = Path(tempfile.mkdtemp(dir=asked.folder))
    try:
        file = write(place, asked.rows)
        command = [sys.executable, __file__, "--of", str(file)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    finally:
        shutil.rmtree(place)
    import numpy
    import pyarrow
    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
    versions["pyarrow"] = pyarrow.__version__
    hardware = {"cpu_cores": os.cpu_count(), "device": "cpu", "files": "on a local disk, just made"}
    print(" ".join(f"{name} {value:,.2f}" for name, value in found.items()))
    if asked.json:
        record = {"found": found, "steps": STEPS, "versions": versions, "hardware": hardware}
        asked.json.write_text(json.dumps(record, indent=1) + "\n")
    return int(found["rows"] >= 5_000_000 and (found["total"] > SECONDS or found["gib"] > GIB))


if __name__ == "__main__":
    sys.exit(main())

"""Requests a second of `isosphere serve`, their median and 99th percentile, and the model's share.

    python benchmarks/serve.py [--device cuda] [--json out.json]

The server is a process of its own. Clients are threads here that post photographs of 640 x 480, one after the other,
and wait for ten neighbors of each. Networks have random weights. Rounds with 1, 8 and 64 clients take turns. A row has
medians of the rounds. The model's share is the part of the time in which the model computes. The same images through
the model alone, in batches of 16, say how many could be embedded.
"""

import argparse
import http.client
import io
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from isosphere.distributed import find_device
from isosphere.export import to_folder
from isosphere.gallery import index
from isosphere.inference import Trained, build_model
from isosphere.recipes import schema

NETWORKS = {"small_cnn": 64, "resnet50": 224}  # and the side of their images
CLIENTS, BATCH, PHOTOS, SIZE = (1, 8, 64), 16, 200, (640, 480)
TIMING = re.compile(r'model;dur=([\d.]+).*batch;desc="(\d+)"')


def photographs(folder: Path) -> list[bytes]:
    """Made-up photographs as JPEG files, of some 100,000 bytes."""
    generator, files = np.random.default_rng(0), []
    for number in range(PHOTOS):
        rough = Image.fromarray(generator.integers(0, 256, (12, 16, 3)).astype(np.uint8)).resize(SIZE)
        grain = generator.integers(0, 24, (SIZE[1], SIZE[0], 3))
        file = io.BytesIO()
        Image.fromarray((np.asarray(rough) * 0.9 + grain).astype(np.uint8)).save(file, "jpeg", quality=85)
        (folder / f"{number:03d}.jpg").write_bytes(file.getvalue())
        files.append(file.getvalue())
    return files


def model_of(backbone: str, device: str) -> Trained:
    """A network that nobody trained."""
    torch.manual_seed(0)
    size = NETWORKS[backbone]
    recipe = schema.Recipe(data=schema.Folder(size=size, shorter=size * 8 // 7), model=schema.Model(backbone, dim=512))
    found = find_device(device)
    return Trained(recipe, build_model(recipe.model, size).to(found).eval(), found, [], None)


def alone(trained: Trained, seconds: float) -> float:
    """Images a second through the model in whole batches, from memory."""
    size = NETWORKS[trained.recipe.model.backbone]
    pixels, count = torch.randint(0, 256, (BATCH, 3, size, size), dtype=torch.uint8), 0
    for _ in range(3):
        trained.embed_seen(pixels).cpu()
    begin = time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        trained.embed_seen(pixels).cpu()
        count += BATCH
    return count / spent


def load(port: int, files: list[bytes], clients: int, seconds: float) -> dict[str, float]:
    """One round: so many clients for so long."""
    times: list[float] = []
    busy: list[float] = []
    sizes: list[int] = []
    failed: list[int] = []
    begin = time.perf_counter()

    def work(start: int) -> None:
        connection, place = http.client.HTTPConnection("127.0.0.1", port, timeout=60), start
        while time.perf_counter() - begin < seconds:
            once = time.perf_counter()
            connection.request("POST", "/search?k=10", files[place % len(files)])
            answer = connection.getresponse()
            answer.read()
            place += 1
            found = TIMING.search(answer.headers.get("Server-Timing", ""))
            if answer.status != 200 or found is None:
                failed.append(answer.status)
                continue
            times.append(time.perf_counter() - once)
            busy.append(float(found[1]) / 1000 / int(found[2]))
            sizes.append(int(found[2]))
        connection.close()

    threads = [threading.Thread(target=work, args=(start * 7,)) for start in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - begin
    return {
        "requests_per_second": len(times) / spent,
        "median_ms": 1000 * statistics.median(times),
        "p99_ms": 1000 * float(np.quantile(times, 0.99)),
        "model_share": sum(busy) / spent,
        "batch": statistics.mean(sizes),
        "failed": len(failed),
    }


def served(backbone: str, device: str, repeats: int, seconds: float) -> list[dict]:
    """Rows of one network."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "photos").mkdir()
        files, trained = photographs(root / "photos"), model_of(backbone, device)
        to_folder(trained, root / "model")
        index(trained, root / "model", root / "photos", root / "gallery")
        ideal = statistics.median(alone(trained, seconds / 2) for _ in range(repeats))
        command = [sys.executable, "-m", "isosphere", "serve", str(root / "gallery"), "--port", "0", "--device", device]
        server = subprocess.Popen([*command, "--batch", str(BATCH)], stdout=subprocess.PIPE, text=True)
        try:
            port = int(re.search(r":(\d+) ", server.stdout.readline())[1])
            load(port, files, max(CLIENTS), seconds / 2)
            rounds = [(clients, load(port, files, clients, seconds)) for _ in range(repeats) for clients in CLIENTS]
        finally:
            server.terminate()
            server.wait(30)
    rows = []
    for clients in CLIENTS:
        found = [one for its, one in rounds if its == clients]
        medians = {name: statistics.median(one[name] for one in found) for name in found[0]}
        rows.append({"network": backbone, "clients": clients, "model_alone_per_second": ideal, **medians})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of a round")
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    before = os.getloadavg()[0]  # processes that run or wait, before this one's
    rows = [row for name in NETWORKS for row in served(name, options.device, options.repeats, options.seconds)]
    table = Table(title=f"Searches of a photograph, {SIZE[0]} x {SIZE[1]}, {options.device}")
    headings = ("", "clients", "a second", "median, ms", "p99, ms", "model's share", "batch", "model alone, a second")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        cells = [f"{row['requests_per_second']:.1f}", f"{row['median_ms']:.1f}", f"{row['p99_ms']:.1f}"]
        cells += [f"{100 * row['model_share']:.0f} %", f"{row['batch']:.1f}", f"{row['model_alone_per_second']:.0f}"]
        table.add_row(row["network"], str(row["clients"]), *cells)
    Console(width=120).print(table)
    if options.json:
        versions = {"python": platform.python_version(), "torch": torch.__version__}
        versions |= {name: __import__(name).__version__ for name in ("starlette", "uvicorn")}
        name = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
        hardware = dict(device=options.device, name=name, cores=os.cpu_count(), threads=torch.get_num_threads())
        hardware["load_of_others"] = before
        size = dict(photos=PHOTOS, width=SIZE[0], height=SIZE[1], batch=BATCH, seconds=options.seconds)
        about = dict(versions=versions, hardware=hardware, size=size | {"repeats": options.repeats}, rows=rows)
        Path(options.json).write_text(json.dumps(about, indent=1))
    return 0 if not any(row["failed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

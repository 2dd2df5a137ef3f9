"""Speed of search in a gallery next to faiss: exact, and by usearch at a recall of 0.95.

    python benchmarks/search.py                     the 10 nearest of 1,000 queries in 1,000,000 x 512, two threads
    python benchmarks/search.py --approximate 0     exact search alone, as an index of a million takes half an hour
    python benchmarks/search.py --count 20000 --approximate 20000 --repeats 3      a trial of the benchmark itself

Vectors lie around centers, 50 to each, as embeddings of classes do. Times are medians of rounds in which all take
turns in one process. A gallery is a file that is mapped: its pages are in memory after the first round. The exit code
is 1 if a target is missed: exact search no slower than faiss IndexFlatIP, and recall@10 of 0.95 by usearch.
"""

import argparse
import json
import statistics
import sys
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path

import faiss
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from isosphere import gallery, sphere
from isosphere.gallery.engines import add_engine, use_engine
from isosphere.metrics.nearest import nearest
from metrics import circumstances, seconds  # benchmarks/metrics.py

DIM, K, PER_CENTER, NOISE = 512, 10, 50, 1.5
THREADS = 2
RECALL = 0.95


def vectors(count: int, queries: int) -> tuple[Tensor, Tensor]:
    """Unit vectors (count, 512), and (queries, 512) around the same centers."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(max(1, count // PER_CENTER), DIM, generator=generator)

    def around(rows: int) -> Tensor:
        chosen = torch.randint(len(centers), (rows,), generator=generator)
        return sphere.directions(centers[chosen] + NOISE * torch.randn(rows, DIM, generator=generator))

    return around(count), around(queries)


def recall(found: Tensor, exact: Tensor) -> float:
    """The share of the rows (Q, K) of exact search that are among those found (Q, K)."""
    return float((exact[:, :, None] == found[:, None, :]).any(2).float().mean())


def exact_rows(held: gallery.Gallery, rows: Tensor, queries: Tensor, repeats: int) -> list[dict]:
    """Exact search in a gallery and in float32 in memory, next to faiss; all queries at once, and one."""
    index = faiss.IndexFlatIP(DIM)
    index.add(rows.numpy())
    work = {
        "gallery, float16": lambda asked: held.nearest(asked, K).indices,
        "float32 in memory": lambda asked: nearest(asked, rows, K).indices,
        "faiss IndexFlatIP": lambda asked: torch.from_numpy(index.search(asked.numpy(), K)[1]),
    }
    asked = {f"{len(queries):,} queries": queries, "one query": queries[:1]}
    spent: dict[tuple[str, str], list[float]] = {(size, name): [] for size in asked for name in work}
    found: dict[tuple[str, str], Tensor] = {}
    for turn in range(repeats + 1):
        for size, name in spent:
            took, found[size, name] = seconds(partial(work[name], asked[size]), "cpu")
            if turn:  # the first one warms up
                spent[size, name].append(took)
    made = []
    for (size, name), times in spent.items():
        peer = statistics.median(spent[size, "faiss IndexFlatIP"])
        row = dict(queries=size, name=name, seconds=statistics.median(times), spread=[min(times), max(times)])
        row |= dict(ratio=row["seconds"] / peer, recall=recall(found[size, name], found[size, "faiss IndexFlatIP"]))
        row["target"] = "<= 1 x faiss" if size != "one query" and name == "gallery, float16" else ""
        made.append(row | dict(reached=row["ratio"] <= 1 or not row["target"]))
    return made


def approximate_rows(held: gallery.Gallery, queries: Tensor, repeats: int) -> list[dict]:
    """usearch in half precision and in int8: making it, searching by it, and what it finds."""
    exact, made = held.nearest(queries, K).indices, []
    for name in ("usearch", "usearch-int8"):
        building, measured = seconds(partial(add_engine, held.folder, name, {}), "cpu")
        opened = gallery.load_gallery(held.folder, "cpu")
        engine = use_engine(opened, name)
        times: list[float] = []
        for turn in range(repeats + 1):
            took, near = seconds(partial(opened.by_engine, engine, queries, K, None), "cpu")
            times += [took] * bool(turn)
        row = dict(queries=f"{len(queries):,} queries", name=name, seconds=statistics.median(times))
        row |= dict(spread=[min(times), max(times)], recall=recall(near.indices, exact), built=building)
        row |= dict(expansion=engine.options["expansion"], bytes=engine.path.stat().st_size)
        made.append(row | dict(target=f"recall >= {RECALL}", reached=row["recall"] >= RECALL, own=measured.recall))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="vectors that are searched exactly")
    parser.add_argument("--approximate", type=int, default=1_000_000, help="vectors that usearch searches; 0 for none")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    faiss.omp_set_num_threads(THREADS)
    found = {}
    for kind, count in (("exact", options.count), ("approximate", options.approximate)):
        if count:
            rows, queries = vectors(count, options.queries)
            with tempfile.TemporaryDirectory() as folder:
                held = gallery.create(Path(folder) / "gallery", rows, [str(row) for row in range(count)])
                if kind == "exact":
                    found[kind] = exact_rows(held, rows, queries, options.repeats)
                else:
                    del rows
                    found[kind] = approximate_rows(held, queries, options.repeats)
            show(kind, count, found[kind])
    if options.json:
        about = circumstances("cpu", peers=False)
        about["versions"] |= {name: version(name) for name in ("faiss-cpu", "usearch")}
        sizes = dict(count=options.count, approximate=options.approximate, queries=options.queries, dim=DIM, k=K)
        Path(options.json).write_text(json.dumps(sizes | dict(repeats=options.repeats) | about | found, indent=1))
    return 0 if all(row["reached"] for rows in found.values() for row in rows) else 1


def show(kind: str, count: int, rows: list[dict]) -> None:
    table = Table(title=f"{kind}: the {K} nearest of {count:,} x {DIM}, {THREADS} threads")
    for heading in ("queries", "search", "s", "x faiss", "recall@10", "built in s", "MB", "target", ""):
        table.add_column(heading)
    for row in rows:
        built = (f"{row['built']:.0f}", f"{row['bytes'] / 1e6:,.0f}") if "built" in row else ("", "")
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        reached = "" if not row["target"] else "reached" if row["reached"] else "[red]MISSED[/red]"
        numbers = (f"{row['seconds']:.3f}", ratio, f"{row['recall']:.4f}", *built)
        table.add_row(row["queries"], row["name"], *numbers, row["target"], reached)
    Console(width=140).print(table)


if __name__ == "__main__":
    sys.exit(main())

"""The tables of docs/evidence/speed.md."""

from typing import Any

from evidence_parts.common import benchmark, results, table

Row = dict[str, Any]
LOSSES = {
    "triplet": "triplet, against pytorch-metric-learning",
    "multi-similarity": "multi-similarity, against pytorch-metric-learning",
    "multi-similarity, plain": "multi-similarity, against plain masks in torch",
    "semi-hard": "semi-hard, against FaceNet's form as it reads",
    "NT-Xent": "NT-Xent, against pytorch-metric-learning",
    "NT-Xent, plain": "NT-Xent, against `F.cross_entropy` of all cosines",
    "ArcFace": "ArcFace, against pytorch-metric-learning",
}
SIZES = {"cpu": (120, 480, 1024), "h200": (120, 1024, 4096)}
MIB = 2**20


def loss_row(loss: str, machine: str, batch: int) -> Row:
    """The timing of a loss at a size."""
    (found,) = [row for row in benchmark(f"losses_{machine}")["rows"] if (row["loss"], row["batch"]) == (loss, batch)]
    return dict(found)


def times(ratio: float) -> str:
    """How many times as fast."""
    return f"{ratio:,.0f} x" if ratio >= 20 else f"{ratio:.1f} x" if ratio >= 2 else f"{ratio:.2f} x"


def ratio(row: Row) -> float | None:
    """The peer's time over ours; None where the peer ran out of memory."""
    return None if row["peer_ms"] is None else row["peer_ms"] / row["ours_ms"]


def losses() -> str:
    """Speed of losses in times their peer's."""
    sizes = [(machine, batch) for machine, batches in SIZES.items() for batch in batches]
    rows = []
    for loss, name in LOSSES.items():
        found = [ratio(loss_row(loss, *size)) for size in sizes]
        rows.append((name, *["peer out of memory" if one is None else times(one) for one in found]))
    names = {"cpu": "CPU", "h200": "H200"}
    return table("our speed | " + " | ".join(f"{names[machine]}, {batch:,}" for machine, batch in sizes), rows)


def memory() -> str:
    """Peak memory of losses, and their time with SEC in a CUDA graph."""
    graph, rows = benchmark("losses_h200")["graph_ms"], []
    for loss in ("triplet", "multi-similarity", "semi-hard", "NT-Xent", "NT-Xent, plain", "ArcFace"):
        shown = []
        for size in (("cpu", 1024), ("h200", 4096)):
            row = loss_row(loss, *size)
            shown += ["-" if row[key] is None else f"{row[key] / MIB:,.0f}" for key in ("ours_bytes", "peer_bytes")]
        row = loss_row(loss, "h200", 4096)
        shown += ["-" if row[key] is None else f"{row[key]:,.1f}" for key in ("ours_ms", "peer_ms")]
        eager = loss_row(loss, "h200", 120)["ours_ms"]
        rows.append((loss, *shown, f"{eager:.1f}", f"{graph[loss]:.3f}" if loss in graph else "-"))
    headings = (
        "loss | MiB, CPU, 1,024: ours | peer | MiB, H200, 4,096: ours | peer | ms, H200, 4,096: ours | peer | "
        "ms, H200, 120, eager | with SEC in a graph"
    )
    return table(headings, rows)


def steps() -> str:
    """A whole training step."""
    names = {"resnet50_v1": "ResNet-50", "bn_inception": "BN-Inception"}
    rows = [
        (names[row["backbone"]], *[f"{row[key]:.1f} ms" for key in ("ours", "ceiling")],
         f"{100 * row['share_of_ceiling']:.0f} %", f"{row['pipeline']:.1f} ms", times(row["times_the_pipeline"]))
        for row in benchmark("step_h200")["rows"]
    ]  # fmt: skip
    return table("network | ours | ceiling | share of it | DataLoader | ours is faster", rows)


def runs() -> str:
    """Whole runs."""
    rates = [run["seconds"] for run in results("rates_cub200").runs]
    (sec,) = [run for run in results("cars196_triplet_8000").runs if run["method"] == "sec"]
    rows = [
        ("1,600 steps of CUB-200-2011, three evaluations", f"{min(rates):.0f} to {max(rates):.0f} s"),
        (f"8,000 steps of Cars196, {len(sec['tests'])} evaluations, {len(sec['turns']) + 1} snapshots",
         f"{sec['seconds']:.0f} s"),
    ]  # fmt: skip
    return table("run on an H200, with compiling where a process is new | time", rows)


def metrics() -> str:
    """Metrics, identification and the probe."""
    sop = "60,502 x 512, 11,316 classes"
    rows = []
    for name, where in (("metrics_cpu", "20,000 x 512, two cores"), ("metrics_h200", f"{sop}, H200"),
                        ("metrics_sop_cpu", f"{sop}, two cores")):  # fmt: skip
        for row in benchmark(name)["rows"]:
            peer = (f"{row['peer']:.1f} s", times(row["speed"])) if "peer" in row else ("-", "-")
            rows.append((row["name"], where, seconds(row["ours"]), *peer))
    for machine, where in (("cpu", "two cores"), ("h200", "H200")):
        found = benchmark(f"identification_{machine}")
        size = f"{found['probes']:,} probes, {found['distractors']:,} distractors, {where}"
        rows.append(("rank-1 identification, exact float32", size, seconds(found["rows"][0]["ours"]), "-", "-"))
    for row in benchmark("probe_h200")["rows"]:
        peer = row["plain_loop"]
        against = (f"{peer:.0f} s", times(peer / row["seconds"])) if peer else ("-", "-")
        rows.append((row["name"], "50,000 x 2,048, H200", seconds(row["seconds"]), *against))
    return table("what / peer | size | ours | peer | ours is faster", rows)


def seconds(value: float) -> str:
    """Seconds in three digits at most."""
    return f"{value:.1f} s" if value >= 1 else f"{value:.2f} s"


def clusters() -> str:
    """Quality of k-means next to the peer's."""
    (found,) = [row for row in benchmark("metrics_sop_cpu")["rows"] if "nmi" in row["found"]]
    rows = [(who, *[f"{100 * found[key][name]:.1f}" for name in ("nmi", "f1")])
            for who, key in (("ours", "found"), ("pytorch-metric-learning with faiss", "peer_found"))]  # fmt: skip
    return table("k-means at SOP's size | NMI | F1", rows)


def heads() -> str:
    """Heads with many identities."""
    rows = []
    for machine, where in (("h200", "H200, bfloat16"), ("cpu", "two cores, float32")):
        found = benchmark(f"heads_{machine}")
        state = found["state_bytes"]
        for name, row in found["rows"].items():
            memory = f"{row['bytes'] / state:.2f} x" if row["bytes"] else "-"
            rows.append((f"{found['options']['classes']:,}, {where}", name, f"{row['ms']:.1f} ms", memory))
    return table("identities | head | a step | memory, in times weights, gradients and momentum", rows)


def simclr() -> str:
    """A step of SimCLR next to others."""
    rows = [
        (row["name"], f"{row['ms']:.1f} ms", f"{row['images_per_second']:,.0f}", times(row["ours_is_faster"]))
        for row in benchmark("simclr_h200")["rows"]
    ]
    return table("who | a step | images a second | ours is faster", rows)


def starts() -> str:
    """How soon a run on many small images takes its first step."""
    rows = []
    for row in benchmark("cache_cpu")["rows"]:
        shown = [f"{seconds:.1f} s" for seconds in (*row["seconds"].values(), row["cpu_seconds"])]
        rows.append((row["start"], *shown, f"{row['load']:.1f}"))
    stages = "imports | images checked | evaluated | first step"
    return table(f"start | {stages} | computed, of all processes | load", rows)


def monitor() -> str:
    """What NormMonitor costs."""
    rows = []
    for machine, where in (("h200", "ResNet-50, H200"), ("cpu", "small network, CPU")):
        (row,) = benchmark(f"monitor_{machine}")["rows"]
        shown = [f"{100 * row[key]:.1f} %" for key in ("share_longer", "share_inside")]
        rows.append((where, f"{row['without_ms']:.1f} ms", *shown))
    return table("eager step | without | longer by, compared | by time inside its calls", rows)

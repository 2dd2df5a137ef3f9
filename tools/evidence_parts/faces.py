"""The tables of docs/evidence/faces.md."""

from evidence_parts.common import among, difference, label, only, rate, results, short, signed, table
from isosphere.paper.published import FACE_METRICS, FACE_RESULTS
from isosphere.report.tables import spread, values_of
from isosphere.runs import Record

HEADS = {"softmax": "Softmax", "normface": "NormFace", "sphereface": "SphereFace", "cosface": "CosFace",
         "arcface": "ArcFace"}  # fmt: skip
MEASURES = {
    "CFP-FF": "cfp_ff", "CFP-FP": "cfp_fp", "TAR at FAR 1 %, FF": "cfp_ff_tar@0.01", "rank 1 of 1,000": "rank1@1000",
    "of 10,000": "rank1@10000", "of LFW's singles": "rank1@singles",
}  # fmt: skip
AUROC = {"CFP-FF": "cfp_ff_norm_auroc", "CFP-FP": "cfp_fp_norm_auroc", "rank 1": "rank1_norm_auroc"}
WEAK = ("faces_lfw_eta0.1", "faces_lfw_eta25")


def faces_runs() -> dict[tuple[str, str, float], list[Record]]:
    """All runs by head, method and eta, those with weak strengths next to the others."""
    found: dict[tuple[str, str, float], list[Record]] = {}
    for run in [run for name in ("faces_lfw", *WEAK) for run in results(name).runs]:
        eta = run["recipe"]["constraint"].get("eta", 0.0)
        found.setdefault((run["cell"].removeprefix("lfw-"), run["method"], eta), []).append(run)
    methods = ["none", "sec", "sec-relative", "l2reg", "sec-ema"]
    return dict(sorted(found.items(), key=lambda one: (list(HEADS).index(one[0][0]), methods.index(one[0][1]))))


def scores() -> str:
    """Verification and identification of every head and method."""
    rows = []
    for (head, method, eta), runs in faces_runs().items():
        lasts = [run["last"] for run in runs]
        shown = [spread(values_of(lasts, key)) for key in MEASURES.values()]
        means, shares = [last["norm_mean"] for last in lasts], [100 * last["norm_cv"] for last in lasts]
        rows.append((HEADS[head], label(method), rate(eta) if eta else "-", *shown, ends(means), ends(shares)))
    return table(f"head | method | eta | {' | '.join(MEASURES)} | mean norm | their spread, % of it", rows)


def ends(values: list[float]) -> str:
    """The least and the most, or the only one."""
    return " to ".join(dict.fromkeys((short(min(values)), short(max(values)))))


def auroc() -> str:
    """How well a low norm predicts an error."""
    rows = []
    for (head, method, eta), runs in faces_runs().items():
        if len(runs) > 1:
            shown = [spread(values_of([run["last"] for run in runs], key)) for key in AUROC.values()]
            rows.append((HEADS[head], label(method), rate(eta) if eta else "-", *shown))
    return table(f"head | method | eta | {' | '.join(AUROC)}", rows)


def harm() -> str:
    """What SEC at the paper's strengths changes, over all pairs of seeds, and the loss that it leaves."""
    runs, rows = results("faces_lfw").runs, []
    for method in ("sec", "sec-relative"):
        shown = []
        for key in (*[MEASURES[name] for name in ("CFP-FF", "CFP-FP", "of 10,000")], AUROC["CFP-FF"], AUROC["rank 1"]):
            shown.append(among(sum(difference(runs, key, method).cells.values(), [])))
        rows.append((f"{label(method)} less baseline", *shown))
    return table("six pairs of seeds | CFP-FF | CFP-FP | rank 1 of 10,000 | AUROC, CFP-FF | AUROC, rank 1", rows)


def loss_on_angles(run: Record) -> float:
    """The loss of the last logged batch less the penalty, which it contains: eta times variance or squared CV."""
    _, loss, mean, variance = run["norms"][-1]
    constraint = run["recipe"]["constraint"]
    return float(loss - constraint.get("eta", 0.0) * variance / (mean**2 if constraint.get("relative") else 1.0))


def losses() -> str:
    """The loss on angles at the last logged step."""
    rows = []
    for (head, method, eta), runs in faces_runs().items():
        if len(runs) > 1:
            last = ends([loss_on_angles(run) for run in runs])
            rows.append((HEADS[head], label(method), rate(eta) if eta else "-", last))
    (slow,) = only(results("faces_lfw").runs, cell="lfw-sphereface")
    rows.append(
        (HEADS["sphereface"], label("none"), "-", f"{short(slow['norms'][-1][1])}, from {short(slow['norms'][0][1])}")
    )
    return table("head | method | eta | loss on angles, last logged batch", rows)


def printed() -> str:
    """SEC's gains on faces in the paper."""
    names = {"lfw": "LFW", "agedb30": "AgeDB-30", "cfpfp": "CFP-FP", "megaface@1e6": "MegaFace, a million"}
    rows = []
    for head in ("cosface", "arcface"):
        theirs = {
            method: dict(zip(FACE_METRICS, FACE_RESULTS[head][method], strict=True)) for method in ("none", "sec")
        }
        gains = [signed((theirs["sec"][key] - theirs["none"][key]) / 100, 2) for key in names]
        rows.append((HEADS[head], *gains))
    return table(f"head | {' | '.join(names.values())}", rows)


def weak() -> str:
    """Weak strengths less the baseline of the same seed."""
    runs = results("faces_lfw").runs
    shown = []
    for key in ("cfp_ff", "cfp_fp", "rank1@10000", "cfp_ff_tar@0.01"):
        values = []
        for name in WEAK:
            for run in results(name).runs:
                (base,) = only(runs, cell=run["cell"], method="none", seed=run["seed"])
                values.append(run["last"][key] - base["last"][key])
        shown.append(among(values))
    return table("four runs less baseline | CFP-FF | CFP-FP | rank 1 of 10,000 | TAR", [("least to most", *shown)])

"""Tables over seeds and pooled differences, against plain loops."""

import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from isosphere.paper import find
from isosphere.paper.tables import printed
from isosphere.recipes import options
from isosphere.tables import (
    comparison,
    differences_table,
    pooled,
    printed_table,
    probe_table,
    seeds_table,
    show,
    spread,
)


def record(cell: str, arm: str, seed: int, value: float | None) -> dict:
    last = {} if value is None else {"recall@1": value, "map@r": value / 2, "nmi": 0.5, "f1": 0.25, "norm_mean": 3.0}
    return {"cell": cell, "arm": arm, "seed": seed, "last": last}


def shown(table, width: int = 120) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))
    console.print(table)
    return console.export_text()


def test_spread():
    assert spread([]) == "-" and spread([61.24]) == "61.2"
    assert spread([60.0, 62.0, 64.0]) == "62.0 ± 2.0"


def test_seeds_table_has_means_spreads_and_divergence():
    records = [record("a", "none", seed, value) for seed, value in enumerate((0.6, 0.62, None))]
    text = shown(seeds_table([*records, record("b", "sec", 0, 0.5)]))
    assert "61.0 ± 1.4" in text and "2 (1 diverged)" in text and "50.0" in text


def simclr_record(arm: str, seed: int, top1: float) -> dict:
    last = {"knn": top1 - 0.2, "probe_top1": top1, "probe_top5": top1 + 0.1, "probe_best_top1": top1 + 0.04}
    last |= {"probe_best_epoch": 61, "probe_top1@1": 0.1234, "norm_mean": 3.0, "norm_variance": 0.5}
    tests = [{"knn": 0.3333}, last]
    return {"cell": "simclr-cifar10", "arm": arm, "seed": seed, "last": last, "tests": tests}


def test_norms_are_told_by_mean_and_variance_beside_the_metrics():
    found = [simclr_record("sec", seed, 0.5) for seed in range(2)]
    found[1]["last"] |= {"norm_mean": 4.0, "norm_variance": 0.7}
    for records, told in ((found, ["3.5", "0.6"]), ([record("a", "sec", 0, 0.5)], ["3", "-"])):  # an older file
        lines = [line.replace(" ± ", "±").split() for line in shown(seeds_table(records)).splitlines()]
        (head,) = (line for line in lines if "variance" in line)
        (row,) = (line for line in lines if line[:1] == ["sec"])
        assert head[-5:-3] == ["norm", "variance"] and row[-3:-1] == told


def test_the_oracle_says_of_which_metric_it_is_and_is_the_probes_for_simclr():
    oracles = {"oracle probe top-1,": simclr_record("sec", 0, 0.5), "oracle R@1,": record("a", "sec", 0, 0.5)}
    oracles["oracle R@1,"]["tests"] = [{"recall@1": 0.54}, {"recall@1": 0.5}]
    for heading, one in oracles.items():
        text = shown(seeds_table([one]))
        (row,) = (line.split() for line in text.splitlines() if line.startswith(" sec "))
        assert heading in text and "picked on test" in text and row[-1] == "54.0", text
    text = shown(comparison({Path("runs/one"): {"last": simclr_record("sec", 0, 0.5)["last"]}}))
    assert "best top-1, picked on test" in text and "54.0" in text and "12.3" not in text and "6100" not in text


def test_pooled_difference_against_a_loop():
    generator = np.random.default_rng(1)
    values = {(cell, arm, seed): generator.random() for cell in "abc" for arm in ("none", "sec") for seed in range(3)}
    found = pooled([record(*key, value) for key, value in values.items()], "recall@1", "sec", "none")
    means = []
    for cell in "abc":
        means.append(np.mean([values[cell, "sec", seed] - values[cell, "none", seed] for seed in range(3)]))
    assert found.mean == pytest.approx(np.mean(means)) and len(found.cells) == 3 and found.pairs == 9
    assert found.positive == sum(mean > 0 for mean in means)
    # The same bootstrap, drawn one by one.
    totals = []
    for _ in range(4000):
        drawn = []
        for cell in generator.choice(list("abc"), 3):
            seeds = generator.integers(0, 3, 3)
            drawn.append(np.mean([values[cell, "sec", seed] - values[cell, "none", seed] for seed in seeds]))
        totals.append(np.mean(drawn))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(totals, (0.025, 0.975))), abs=0.03)


def covered(cells: int, seeds: int, times: int = 300) -> float:
    """How often the interval holds the true difference, 0, where cells differ as much as seeds do."""
    generator, held = np.random.default_rng(2), 0
    for _ in range(times):
        values = generator.normal(size=(cells, 1)) * (cells > 1) + generator.normal(size=(cells, seeds))
        records = [record(str(c), "sec", s, float(values[c, s])) for c in range(cells) for s in range(seeds)]
        records += [record(str(c), "none", s, 0.0) for c in range(cells) for s in range(seeds)]
        found = pooled(records, "recall@1", "sec", "none", resamples=1000)
        held += found.low <= 0 <= found.high
    return held / times


def test_how_often_the_interval_holds_the_truth():
    """Of one cell as often as it says; of a few less often, which docs/results.md tells."""
    assert covered(1, 3) == pytest.approx(0.95, abs=0.03)
    assert covered(4, 3) == pytest.approx(0.86, abs=0.04)
    assert covered(8, 3) == pytest.approx(0.91, abs=0.03)


def test_the_interval_of_one_cell_is_students():
    differences = [0.1, 0.4, 0.2]
    records = [record("a", "sec", seed, 0.3 + more) for seed, more in enumerate(differences)]
    records += [record("a", "none", seed, 0.3) for seed in range(3)]
    found = pooled(records, "recall@1", "sec", "none")
    wanted = stats.ttest_1samp(differences, 0).confidence_interval()
    assert (found.low, found.high) == pytest.approx(tuple(wanted))


def test_only_pairs_of_one_cell_and_seed_count():
    records = [record("a", "none", 0, 0.5), record("a", "sec", 1, 0.9), record("b", "sec", 0, 0.9)]
    assert pooled(records, "recall@1", "sec", "none") is None
    records += [record("a", "sec", 0, 0.6), record("b", "none", 0, None)]
    found = pooled(records, "recall@1", "sec", "none")
    assert found.pairs == 1 and found.mean == pytest.approx(0.1)
    assert found.low is None and found.high is None, "one pair has no spread"
    records += [record("c", arm, 0, value) for arm, value in (("none", 0.5), ("sec", 0.8))]
    found = pooled(records, "recall@1", "sec", "none")
    assert found.pairs == 2 and found.low is None, "an interval of two would be just these two"
    records += [record("d", arm, 0, value) for arm, value in (("none", 0.5), ("sec", 0.9))]
    found = pooled(records, "recall@1", "sec", "none")
    assert (found.low, found.high) == pytest.approx((0.1, 0.4)), "three cells of one pair each have one"


def test_differences_table_compares_relative_sec_with_sec_too():
    records = [record("a", arm, 0, v) for arm, v in (("none", 0.5), ("sec", 0.52), ("sec-relative", 0.55))]
    text = shown(differences_table(records))
    assert "sec - none" in text and "+2.0" in text and "sec-relative - sec" in text and "+3.0" in text
    rows = [line.split() for line in text.splitlines() if " - " in line]
    assert len(rows) == 6 and all(row[-5] == "-" and row[-1] == "1" for row in rows), "no interval of one pair"


def face_record(arm: str, seed: int, value: float) -> dict:
    last = {"accuracy": value, "cfp_fp": value, "mine": 0.8123, "cfp_fp_auc": value + 0.01, "mine_auc": 0.9111}
    last |= {"cfp_fp_tar@0.01": 0.4321, "cfp_fp_norm_auroc": value - 0.3, "rank1_norm_auroc": 0.5432}
    last |= {"rank1@1000": value + 0.02, "rank1@10315": 2 * value - 0.9, "norm_mean": 22.6, "norm_variance": 0.1}
    return {"cell": "lfw-cosface", "arm": arm, "seed": seed, "last": last}


def test_faces_have_a_table_of_what_the_norm_foretells():
    text = shown(comparison({Path("runs/one"): {"last": face_record("sec", 0, 0.85)["last"]}}))
    for words in ("AUC", "TAR at", "FAR 1 %", "AUROC", "50 is chance", "mine", "rank 1 of 10,315"):
        assert words in text, words
    for value in ("86.0", "81.2", "91.1", "43.2", "55.0", "54.3"):
        assert value in text, value
    both = shown(seeds_table([face_record("none", seed, value) for seed, value in enumerate((0.84, 0.86, 0.88))]))
    assert "87.0 ± 2.0" in both and "56.0 ± 2.0" in both and "AUROC" in both and "lfw-cosface none" in both
    assert "AUROC" not in shown(seeds_table([record("a", "none", 0, 0.6)]))


def test_differences_of_rank_1_are_told_among_the_most_distractors():
    text = shown(differences_table([face_record("none", 0, 0.85), face_record("sec", 0, 0.87)]))
    (line,) = (line for line in text.splitlines() if "rank 1 of" in line)
    assert "rank 1 of 10,315" in line and "+4.0" in line
    assert "accuracy" in text and "+2.0" in text


def test_differences_of_faces_are_told_of_each_set_and_of_the_norm():
    records = [face_record("none", 0, 0.85), face_record("sec", 0, 0.87)]
    lines = [line for line in shown(differences_table(records)).splitlines() if "sec - none" in line]
    assert dict(re.split("  +", line.strip())[1:3] for line in lines) == {
        "accuracy": "+2.0", "CFP-FP": "+2.0", "mine": "+0.0", "rank 1 of 10,315": "+4.0", "CFP-FP norm AUROC": "+2.0",
        "rank 1 norm AUROC": "+0.0",
    }  # fmt: skip
    for record in records:  # accuracy is that of the only set
        record["last"] = {name: value for name, value in record["last"].items() if not name.startswith("mine")}
    assert "CFP-FP  " not in shown(differences_table(records))


def test_rank_1_among_one_set_of_distractors_is_told_by_its_name():
    records = [face_record(arm, 0, 0.85) for arm in ("none", "sec")]
    for record in records:
        record["last"] |= {"rank1@singles": 0.4, "rank1@images": 0.3}
    for table in (seeds_table(records), comparison({Path("runs/one"): {"last": records[0]["last"]}})):
        ranks = ["rank 1 of 1,000", "rank 1 of 10,315", "rank 1 among images", "rank 1 among singles"]
        head = next(line for line in shown(table, 300).splitlines() if "rank 1 of" in line)
        assert [words for words in re.split("  +", head.strip()) if "rank 1" in words] == ranks
    text = shown(differences_table(records))
    assert "rank 1 of 10,315" in text and "among" not in text, "one set alone is fewer distractors"


def test_what_the_paper_printed_is_headed_as_ours():
    for table, cell, names in (
        ("table4", "lfw-cosface", ["arm", "LFW", "AgeDB-30", "CFP-FP", "megaface@1e6"]),
        ("table3", "cub200-ms", ["arm", "NMI", "F1", "R@1", "R@2"]),
        ("table5", "simclr-cifar10", ["arm", "probe top-1", "top-5"]),
    ):
        text = shown(printed_table(*printed(table, cell), "printed"))
        head = next(line for line in text.splitlines() if line.startswith(" arm"))
        assert re.split("  +", head.strip())[: len(names)] == names


def test_a_narrow_terminal_cuts_no_number(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    show(seeds_table([record("cub200-semihard", "sec-relative", seed, 0.6 + seed / 100) for seed in range(3)]))
    text = capsys.readouterr().out
    assert "…" not in text and "cub200-semihard" in text and "61.0 ± 1.0" in text and "30.5 ± 0.5" in text


def line(table) -> str:
    """What is shown, without its line breaks."""
    return " ".join(shown(table).split())


def test_queries_that_cannot_be_right_are_counted():
    last = record("c", "sec", 0, 0.5)["last"] | {"norm_mean": 1.0, "norm_variance": 0.1}
    runs = {Path(name): {"last": last | {"singletons": count}} for name, count in (("a", 7), ("b", 0), ("c", 2))}
    assert "2 or 7 queries have no other image of their class and count as wrong" in line(comparison(runs))
    assert "queries" not in line(comparison({Path("b"): runs[Path("b")]}))


def test_the_title_is_what_the_runs_say_was_tested():
    last = record("a", "none", 0, 0.6)["last"] | {"norm_variance": 1.0}
    told = {"tested": "test images; 3 of 5 classes were trained on"}
    assert "never seen in training; metrics in %" in line(comparison({Path("r"): {"last": last}}))  # an older run
    for text in (
        line(comparison({Path("r"): {"last": last} | told})),
        line(seeds_table([record("a", "none", 0, 0.6) | told])),
    ):
        assert "3 of 5 classes were trained on; metrics in %" in text and "never seen" not in text
    norms = {"last": {"norm_mean": 1.0, "norm_variance": 1.0}, "tested": "the images trained on"}
    assert "norms of the images trained on" in line(comparison({Path("r"): norms}))
    both = line(comparison({Path("r"): {"last": last}, Path("s"): {"last": last} | told}))
    assert "never seen in training or test images; 3 of 5" in both


@pytest.mark.parametrize(("name", "held"), [("cub200-ms", "20"), ("simclr-cifar10", "0.1")])
def test_trials_are_not_said_to_be_tested_on_test_data(name, held):
    told = "test classes, never seen in training"
    for value, words in ((held, f"held-out training {'classes' if held == '20' else 'images'}"), ("0", told)):
        recipe = options.to_dict(find(name, {"data.held_out": value}))
        last = record("a", "none", 0, 0.6)["last"] | {"norm_variance": 1.0}
        text = line(comparison({Path("r"): {"last": last, "tested": told, "recipe": recipe}}))
        assert f"{words}; metrics in %" in text and (told in text) == (words == told)


def test_names_keep_their_brackets():
    last = record("a", "none", 0, 0.6)["last"] | {"norm_variance": 1.0, "mine[2]": 0.5, "mine[2]_auc": 0.5}
    text = shown(comparison({Path("closing[x]-sec"): {"last": last, "tested": "all classes of a[b]"}}))
    assert "closing[x]-sec" in text and "all classes of a[b]" in text and "mine[2]" in text
    text = shown(seeds_table([record("cell[x]", "arm[y]", 0, 0.5)]))
    assert "cell[x]" in text and "arm[y]" in text
    assert "run[z]" in shown(probe_table({}, "run[z]", "test images"))

"""Files of results are found by what they hold: names are for people, and nothing of before is lost."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from isosphere import runs
from isosphere.paper.experiment import experiment, open_results, place, plain_name, siblings
from isosphere.paper.results import Results
from isosphere.paper.tables import TABLES, Asked, cells
from isosphere.recipes import override
from isosphere.runs import Experiment

A_RUN = {"cell": "c", "method": "none", "recipe": {}, "last": {}}
SHIPPED = Path(__file__).parents[2] / "results"


def chosen(table: str, changes: dict[str, str], **asked: object) -> dict:
    found = cells(table, Asked(**asked))
    return {
        cell: {method: override(recipe, changes) for method, recipe in methods.items()}
        for cell, methods in found.items()
    }


def write(path: Path, held: Experiment | None) -> Path:
    path.write_text(json.dumps({"experiment": held and asdict(held), "trials": [], "runs": [A_RUN]}))
    return path


@pytest.mark.parametrize("path", [path for path in sorted(SHIPPED.glob("*.json")) if runs.experiment_of(path)])
def test_files_that_are_here_say_what_they_hold(path):
    held = runs.experiment_of(path)
    assert held.table in {*TABLES, ""}
    if held.table:
        assert plain_name(held) == path.stem and place(SHIPPED, held, {}) == path
        assert path in siblings(SHIPPED, held)
    assert not held.tuned_by or (SHIPPED / f"{held.tuned_by}.json").is_file()


def test_every_file_of_runs_here_says_what_it_holds():
    silent = [path.name for path in SHIPPED.glob("*.json") if runs.experiment_of(path) is None]
    assert all(name.startswith(("bench_", "figures_", "resume_")) for name in silent)


@pytest.mark.parametrize("old", runs.RENAMED)
def test_a_name_of_before_finds_its_file(old):
    now = SHIPPED / f"{runs.RENAMED[old]}.json"
    assert runs.results_path(SHIPPED / f"{old}.json") == runs.results_path(SHIPPED / old) == now
    assert runs.read_results(SHIPPED / f"{old}.json").name == now.stem
    assert Results(SHIPPED / f"{old}.json").path == now


def test_what_a_run_was_tuned_by_has_todays_name():
    results = runs.read_results(SHIPPED / "simclr_cifar10_tuned_by_resnet18.json")
    assert results.experiment.tuned_by == "simclr_cifar10_resnet18"
    assert {record["tuned_by"] for record in results.runs} == {results.experiment.tuned_by}


@pytest.mark.parametrize(
    ("table", "changes", "more", "name"),
    [
        ("table3", {"data.root": "elsewhere", "loop.workers": "0"}, {}, "retrieval_cub200"),
        ("table5", {"model.backbone": "resnet18_cifar"}, {}, "simclr_cifar10_resnet18"),
        ("table5", {"model.backbone": "small_cnn"}, {}, "simclr_cifar10_small_cnn"),
        ("table5", {"loop.compile": "true", "optimizer.lr": "4.464285714e-1"}, {"tuned": False},
         "simclr_cifar10_untuned_lr0.446"),
        ("table5", {}, {"paper": True}, "simclr_cifar10_paper"),
        ("table3", {"loss": "Triplet", "model.head": "fc"}, {}, "retrieval_cub200_Triplet_head_fc"),
        ("table3", {"data.flip": "false", "loop.clip": "none", "data.scale": "0.2,1"}, {},
         "retrieval_cub200_no_flip_scale_0.2-1.0_clip_none"),
        ("table9", {}, {}, "ablation_of_rho_cars196"),
        ("heads", {}, {}, "heads_cub200"),
    ],
)  # fmt: skip
def test_a_new_experiment_has_a_name_that_people_can_read(tmp_path, table, changes, more, name):
    results = open_results(tmp_path, table, chosen(table, changes), changes, **more)
    assert results.path == tmp_path / f"{name}.json" and not results.path.exists()


def test_the_file_is_found_by_what_it_holds_whatever_its_name(tmp_path):
    changes = {"optimizer.lr": "0.1"}
    sought = experiment("table5", chosen("table5", changes), changes)
    assert sought == Experiment("table5", "cifar10", changes={"optimizer.lr": 0.1})
    mine = write(tmp_path / "mine.json", sought)
    for value in ("0.1", "1e-1", 0.1):
        assert open_results(tmp_path, "table5", chosen("table5", changes), {"optimizer.lr": value}).path == mine
    other = {"optimizer.lr": "0.2"}
    assert open_results(tmp_path, "table5", chosen("table5", other), other).path.name == "simclr_cifar10_lr0.2.json"


def test_experiments_of_one_name_have_two_files(tmp_path):
    first = Experiment("table5", "cifar10", changes={"optimizer.lr": 0.10001})
    second = replace(first, changes={"optimizer.lr": 0.10002})
    assert plain_name(first) == plain_name(second)
    write(place(tmp_path, first, {}), first)
    path = place(tmp_path, second, {})
    assert path.name.startswith("simclr_cifar10_lr0.1_") and not path.exists()
    write(path, second)
    assert place(tmp_path, second, {}) == path != place(tmp_path, first, {})
    many = {f"loop.field{number}": number for number in range(30)}
    names = {plain_name(replace(first, changes=many | {"seed": seed})) for seed in (1, 2)}
    assert len(names) == 2 and max(map(len, names)) < 120


@pytest.mark.parametrize(
    ("table", "changes", "old"),
    [
        ("table3", {"data.root": "elsewhere"}, "table3_cub200"),
        ("table5", {"model.backbone": "resnet18_cifar", "optimizer.lr": "0.11160714285714285",
                    "optimizer.weight_decay": "0.0014000000000000002"}, "table5_cifar10_untuned_89170790"),
        ("table4", {"constraint.eta": "0.1"}, "table4_casia_eta=0.1"),
        ("table3", {"data.scale": "0.5,1"}, "table3_cub200_data.scale=0.5,1"),
    ],
)  # fmt: skip
def test_a_file_that_older_versions_began_goes_on(tmp_path, table, changes, old):
    """The hash is that of a file which an older version wrote."""
    write(tmp_path / f"{old}.json", None)
    methods = {"methods": ("sec",)} if "constraint.eta" in changes else {}
    results = open_results(tmp_path, table, chosen(table, changes, **methods), changes, tuned="untuned" not in old)
    assert results.path == tmp_path / f"{old}.json"


def test_siblings_are_the_same_on_other_data(tmp_path):
    one = Experiment("table3", "cub200")
    two = write(tmp_path / "b.json", replace(one, dataset="cars196"))
    write(tmp_path / "c.json", replace(one, protocol="untuned"))
    (tmp_path / "d.json").write_text("[]")
    (tmp_path / "e.json").write_text('{"experiment": {"of": "a later version"}}')
    assert siblings(tmp_path, one) == [two]

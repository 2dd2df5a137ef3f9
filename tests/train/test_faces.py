"""Faces through the one loop, on miniature LFW, CFP, probes and distractors: colored patterns, one a person."""

import io
import json
import math
import pickle
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import ranks
from commands import command
from isosphere.data import CachedSet, ImageSet, frames
from isosphere.data.alignment import WHOLE, FaceView, align, framed
from isosphere.data.decoding import decode
from isosphere.data.faces import identities
from isosphere.data.images import open_images
from isosphere.data.pairs import SETS, read_pairs
from isosphere.errors import (
    BadArgument,
    CopiesWarning,
    CroppedFacesWarning,
    Incompatible,
    Interrupted,
    NamesakesWarning,
    OneKindOfPairs,
    Option,
    RepeatedDistractors,
    SinglePhotographs,
    TooFewClasses,
    TrainedPhotographs,
    UnreadableImages,
)
from isosphere.inference import embed, load_run
from isosphere.metrics.distractors import distractors_ahead, identification
from isosphere.metrics.faces import auc, norm_and_errors, pair_cosines, wrong_pairs
from isosphere.metrics.faces import verification as verified
from isosphere.paper import find
from isosphere.recipes import schema
from isosphere.recipes.fields import located
from isosphere.runs import bases, read_recipe
from isosphere.train import faces as face_task
from isosphere.train import loop, overlap
from isosphere.train.build import build_task
from isosphere.train.measure import measure_run
from isosphere.train.retrieval import Retrieval
from pixels import pixels_of
from raised import raised, warned

CPU = torch.device("cpu")
SMALL = {
    "data.allow_missing": "true", "model.backbone": "small_cnn", "model.dim": "16", "batches.size": "12",
    "loop.unit": "steps", "loop.steps": "6", "loop.eval_every": "6", "loop.save_every": "3", "loop.log_every": "1",
    "loop.workers": "0", "optimizer.lr": "0.02",
}  # fmt: skip
POINTS = np.array([(10, 12), (18, 12), (14, 16), (11, 20), (17, 20)], dtype=float)  # of every photograph


def photograph(person: int, number: int, side: int = 28) -> Image.Image:
    """The person's own pattern of 5 x 5 colors, blurred, lit and disturbed differently each time."""
    pattern = np.random.default_rng(person).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    noise = np.random.default_rng((person, number))
    pixels = np.asarray(Image.fromarray(pattern).resize((side, side), Image.BICUBIC)).astype(float)
    pixels = pixels * noise.uniform(0.6, 1) + noise.normal(0, 40, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def save(path: Path, person: int, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    photograph(person, number).save(path)


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """people/ to train on, lfw/ and cfp/ to verify, probes/ to identify among more/ and others.csv."""
    root = tmp_path_factory.mktemp("faces")
    people = [(f"Person_{n}", n, 4) for n in range(8)] + [("Tess_Ted", 8, 4), ("Una", 9, 1)]
    lines = []
    for name, person, count in people:
        for number in range(count):
            save(root / "people" / name / f"{number}.png", person, number)
            shifted = POINTS + np.random.default_rng(person + 100 * number).uniform(-1, 1, (5, 2))
            lines.append(f"{name}/{number}.png " + " ".join(f"{value:.2f}" for value in shifted.ravel()))
    (root / "people" / "landmarks.txt").write_text("\n".join(lines) + "\n")
    (root / "exclude.txt").write_text("Tess Ted\n\n")

    rows = ["10\t2"]
    for fold in range(10):
        first, second = 20 + 2 * (fold % 5), 21 + 2 * (fold % 5)
        rows += [f"N{first}\t1\t{2 + fold // 5}", f"N{second}\t2\t3"]
        rows += [f"N{first}\t{1 + fold // 5}\tN{second}\t1", f"N{second}\t3\tN{first}\t2"]
    (root / "lfw").mkdir()
    (root / "lfw" / "pairs.txt").write_text("\n".join(rows) + "\n")
    for person in range(20, 30):
        for number in (1, 2, 3):
            save(root / "lfw" / f"N{person}" / f"N{person}_{number:04d}.png", person, number)

    listed: dict[str, list[str]] = {"F": [], "P": []}
    for person in range(1, 5):
        for kind, folder, count in (("F", "frontal", 3), ("P", "profile", 2)):
            for number in range(1, count + 1):
                file = f"Data/Images/{person:03d}/{folder}/{number:02d}.png"
                save(root / "cfp" / file, 40 + person, number + (10 if kind == "P" else 0))
                listed[kind].append(f"{len(listed[kind]) + 1} ../{file}\n")
    for kind, files in listed.items():
        path = root / "cfp" / "Protocol" / f"Pair_list_{kind}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(files))
    for kinds, per in (("FP", 2), ("FF", 3)):
        for fold in range(10):
            folder = root / "cfp" / "Protocol" / "Split" / kinds / f"{fold + 1:02d}"
            folder.mkdir(parents=True)
            one, two = fold % 4, (fold + 1 + fold // 4) % 4
            same = [(3 * one + 1, per * one + 2), (3 * two + 2, per * two + (1 if kinds == "FP" else 3))]
            diff = [(3 * one + 1, per * two + 1), (3 * two + 3, per * one + 2)]
            for name, pairs in (("same", same), ("diff", diff)):
                (folder / f"{name}.txt").write_text("".join(f"{a},{b}\n" for a, b in pairs))

    for person in range(60, 66):
        for number in range(3):
            save(root / "probes" / f"P{person}" / f"{number}.png", person, number)
    for person in range(70, 80):
        save(root / "more" / f"{person}.png", person, 0)
        save(root / "listed" / f"{person}.png", person + 10, 0)
    for number in range(3):
        save(root / "alone" / "Ann" / f"{number}.png", 90, number)
    (root / "others.csv").write_text("path,label\n" + "".join(f"listed/{n}.png,D{n}\n" for n in range(70, 80)))
    return root


def fields(root: Path, **changes: object) -> dict[str, str]:
    """What makes a face recipe miniature, with fields changed: group__field=value."""
    places = {"data.root": root / "people", "data.pairs_root": root, "data.exclude": root / "exclude.txt"}
    places |= {"data.probes": root / "probes", "data.distractors": f"{root / 'more'},{root / 'others.csv'}"}
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    return SMALL | {name: str(value) for name, value in (places | changed).items()}


def recipe_of(root: Path, name: str = "lfw-cosface-sec", **changes: object) -> schema.Recipe:
    return find(name, fields(root, **changes))


def options(root: Path, **changes: object) -> list[str]:
    return [word for name, value in fields(root, **changes).items() for word in (f"--{name}", value)]


def saved(folder: Path) -> dict:
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def same_weights(left: dict, right: dict, exactly: bool = True) -> None:
    for part in ("model", "criterion", "constraint"):
        assert left[part].keys() == right[part].keys()
        for name, value in left[part].items():
            if exactly:
                assert torch.equal(value, right[part][name]), name
            else:
                torch.testing.assert_close(value, right[part][name], rtol=1e-7, atol=1e-9)
    for number, moments in left["optimizer"]["state"].items():
        for name, value in moments.items():
            other = right["optimizer"]["state"][number][name]
            torch.testing.assert_close(value, other, rtol=0 if exactly else 1e-7, atol=0 if exactly else 1e-9)


# ---------------------------------------------------------------- from training to numbers


@pytest.fixture(scope="module")
def trained(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pairs = "lfw,cfp_fp,cfp_ff"
    folder = tmp_path_factory.mktemp("runs") / "whole"
    loop.fit(recipe_of(faces, data__pairs=pairs, loop__unit="epochs", loop__steps=3, loop__save_every=2), folder, "cpu")
    return folder


def test_a_run_from_cached_faces_equals_a_run_from_files(faces: Path, trained: Path, tmp_path: Path) -> None:
    recipe, found = read_recipe(trained), []
    assert recipe.data.cache == "auto"
    loop.fit(replace(recipe, data=replace(recipe.data, cache="none")), tmp_path / "files", "cpu")
    for folder in (trained, tmp_path / "files"):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        result = json.loads((folder / "result.json").read_text())
        found.append((lines, result["last"], result["notes"], result["counts"]))
    assert found[0] == found[1]
    same_weights(saved(trained), saved(tmp_path / "files"))
    images = [build_task(replace(recipe.data, cache=cache), CPU).evaluation.sets for cache in ("auto", "none")]
    assert {type(one) for one in images[0]} == {CachedSet} and {type(one) for one in images[1]} == {ImageSet}
    for cached, plain in zip(*images, strict=True):
        assert torch.equal(pixels_of(cached), plain.pixels) and cached.note == plain.note


def mirrored(model: torch.nn.Module, pixels: Tensor) -> Tensor:
    with torch.no_grad():
        both = [(model(one[None])[0], model(one[None].flip(-1))[0]) for one in pixels]
    return torch.stack([(a + b) / (a + b).norm() * (a.norm() + b.norm()) / 2 for a, b in both])


def test_a_run_shows_verification_identification_and_what_the_norm_predicts(faces: Path, trained: Path) -> None:
    last = json.loads((trained / "result.json").read_text())["last"]
    run = load_run(trained, "cpu")
    accuracies = []
    for name, view in (("lfw", FaceView()), ("cfp_fp", WHOLE), ("cfp_ff", WHOLE)):
        pairs = read_pairs(name, faces, allow_missing=True)
        embeddings = mirrored(run.model, torch.stack([view(decode(path)) for path in pairs.images.paths]))
        left, right = embeddings[pairs.left], embeddings[pairs.right]
        expected = verified(left, right, pairs.same, pairs.fold)
        assert last[name] == pytest.approx(expected["accuracy"])
        assert last[f"{name}_std"] == pytest.approx(expected["std"])
        cosines = pair_cosines(left, right)
        assert last[f"{name}_auc"] == pytest.approx(auc(cosines, pairs.same))
        wrong, _ = wrong_pairs(cosines, pairs.same, pairs.fold)
        lower = torch.minimum(left.norm(dim=1), right.norm(dim=1))
        foretold = norm_and_errors(lower, wrong)["auroc"]
        assert (f"{name}_norm_auroc" in last) == (foretold is not None)
        assert foretold is None or last[f"{name}_norm_auroc"] == pytest.approx(foretold)
        accuracies.append(last[name])
    assert last["accuracy"] == pytest.approx(sum(accuracies) / 3) and last["accuracy"] > 0.6

    sets = [open_images(str(faces / "probes")), open_images(str(faces / "more"), flat=True)]
    sets.append(open_images(str(faces / "others.csv")))
    probes, *others = (mirrored(run.model, framed(images, WHOLE, workers=0).pixels) for images in sets)
    found = identification(probes, sets[0].labels, torch.cat(others), counts=(20,))
    assert last["rank1@20"] == pytest.approx(found["rank1@20"]) and found["pairs"] == 6 * 3 * 2
    for name, its in zip(("more", "others"), others, strict=True):
        alone = identification(probes, sets[0].labels, its, counts=(len(its),))[f"rank1@{len(its)}"]
        assert last[f"rank1@{name}"] == pytest.approx(alone) and alone >= found["rank1@20"]
    assert {name for name in last if name.startswith("rank1@")} == {"rank1@20", "rank1@more", "rank1@others"}
    rows, _, ahead = distractors_ahead(probes, sets[0].labels, torch.cat(others), [20])
    foretold = norm_and_errors(probes.norm(dim=1)[rows], ahead[20] > 0)["auroc"]
    assert foretold is not None and last["rank1_norm_auroc"] == pytest.approx(foretold)


def test_evaluate_and_embed_repeat_the_run(faces: Path, trained: Path, tmp_path: Path, capsys) -> None:
    last = json.loads((trained / "result.json").read_text())["last"]
    run = load_run(trained, "cpu")
    assert measure_run(run)["last"] == pytest.approx(last)
    code, shown, _ = command(capsys, "evaluate", trained, "--device", "cpu")
    assert code == 0 and "rank 1 of 20" in shown and "CFP-FP" in shown
    assert f"{100 * last['cfp_ff_auc']:.1f}" in shown and "AUROC" in shown
    foretold = [last[name] for name in last if name.endswith("_norm_auroc")]
    assert foretold and all(f"{100 * value:.1f}" in shown for value in foretold)
    assert f"{100 * last['cfp_ff']:.1f}" in shown and f"{100 * last['rank1@20']:.1f}" in shown

    # `embed` frames photographs as those trained on, or by another share: CFP's are cut to the face already.
    images = read_pairs("cfp_ff", faces, allow_missing=True).images
    rows = [f"{path},{images.classes[label]}\n" for path, label in zip(images.paths, images.labels, strict=True)]
    (tmp_path / "cfp.csv").write_text("path,label\n" + "".join(rows))
    for share, view in (("", FaceView()), (":1", WHOLE)):
        code, _, err = command(
            capsys, "embed", trained, f"{tmp_path}/cfp.csv{share}", "--out", tmp_path / "e.npy", "--device", "cpu"
        )
        wanted = mirrored(run.model, torch.stack([view(decode(path)) for path in images.paths]))
        assert code == 0, err
        np.testing.assert_allclose(np.load(tmp_path / "e.npy"), wanted.numpy(), rtol=1e-5, atol=1e-4)
    (tmp_path / "cfp.csv").write_text("path,label\n" + "".join(rows) + "people.csv,nobody\n")
    words = ["embed", trained, tmp_path / "cfp.csv", "--out", tmp_path / "f.npy", "--device", "cpu"]
    (tmp_path / "people.csv").write_text("no picture")
    code, _, err = command(capsys, *words)
    assert code == 2 and "--data.skip_unreadable true" in err and not (tmp_path / "f.npy").exists(), err
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = command(capsys, *words, "--data.skip_unreadable", "true")
    assert code == 0 and "1 of 21 images are unreadable" in err and len(np.load(tmp_path / "f.npy")) == len(rows), err


def test_every_place_of_a_run_is_found_again_from_above_it(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    for name in ("people", "packed", "singles.csv", "here.csv"):
        (tmp_path / name).mkdir()
    here = str(tmp_path / "here.csv")
    data = schema.Faces(root="people", probes="gone.csv", distractors=("singles.csv:0.5", here, "gone.csv:0.5"))
    found = located(schema.Recipe(data=data), bases(run)).data
    assert found.root == str(tmp_path / "people") and found.exclude == ""
    assert found.probes == "gone.csv", "it is named as the recipe has it"
    assert found.distractors == (f"{tmp_path / 'singles.csv'}:0.5", here, "gone.csv:0.5")


def test_evaluate_needs_nobody_who_was_trained_on(faces: Path, trained: Path, monkeypatch) -> None:
    last = json.loads((trained / "result.json").read_text())["last"]
    run = load_run(trained, "cpu")
    gone = replace(run.recipe.data, root=str(faces / "moved"), exclude=str(faces / "moved.txt"))
    found = measure_run(replace(run, recipe=replace(run.recipe, data=gone)))["last"]
    assert found == pytest.approx(last)


def test_evaluate_takes_other_test_sets(faces: Path, trained: Path, capsys) -> None:
    words = ["evaluate", trained, "--device", "cpu", "--data.pairs", "cfp_ff", "--data.probes", faces / "probes"]
    code, shown, err = command(capsys, *words, f"--data.distractors={faces / 'more'}")
    assert code == 0 and "CFP-FF" in shown and "CFP-FP" not in shown and "rank 1 of 10" in shown, err
    last = json.loads((trained / "result.json").read_text())["last"]
    assert f"{100 * last['cfp_ff']:.1f}" in shown
    code, _, err = command(capsys, "evaluate", trained, "--device", "cpu", "--optimizer.lr", "1")
    assert code == 2 and "--optimizer.lr" in err
    code, _, err = command(capsys, "evaluate", trained, "--device", "cpu", "--data.pears", "lfw")
    assert code == 2 and "pears" in err


def own_pairs(faces: Path, folder: Path, rows: list[str]) -> None:
    """A folder of its own with the photographs of `people` under the same names, and a list of pairs."""
    shutil.copytree(faces / "people", folder / "people")
    (folder / "mine_pair.txt").write_text("\n".join(rows) + "\n")


ROWS = [f"Person_{n}/0.png Person_{m}/1.png {int(n == m)}" for n in range(2, 7) for m in (n, n - 1)]


@pytest.mark.parametrize("align", [False, True])
def test_what_embed_and_evaluate_are_given_is_seen_as_in_verification(
    faces: Path, tmp_path: Path, capsys, align: bool
) -> None:
    own_pairs(faces, tmp_path / "own", ROWS)
    (tmp_path / "own" / "people" / "landmarks.txt").rename(tmp_path / "own" / "landmarks.txt")
    (tmp_path / "leave.txt").write_text("\n".join(f"Person_{n}" for n in range(1, 7)))
    changes = {"data__pairs": "mine", "data__pairs_root": tmp_path / "own", "data__exclude": tmp_path / "leave.txt"}
    changes |= {"data__probes": "", "data__distractors": "", "data__fraction": 0.7, "data__align": align}
    run = tmp_path / "run"
    loop.fit(recipe_of(faces, **changes, loop__steps=2, loop__eval_every=2), run, "cpu")

    images = read_pairs("mine", tmp_path / "own").images
    rows = [f"{path},{Path(path).parent.name}\n" for path in images.paths]
    (tmp_path / "own" / "all.csv").write_text("path,label\n" + "".join(rows))
    words = [run, f"{tmp_path}/own/all.csv", "--device", "cpu"]
    code, _, err = command(capsys, "embed", *words, "--out", tmp_path / "e.npy")
    assert code == 0, err
    found, kept = np.load(tmp_path / "e.npy"), np.load(run / "test_embeddings.npz")
    trained = load_run(run, "cpu")
    evaluation = build_task(trained.recipe.data, CPU).evaluation
    embedded = evaluation.embed(trained.embedder, True)
    np.testing.assert_allclose(found, embedded["embeddings"], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(found, kept["embeddings"] * kept["scale"], atol=1e-3 * kept["scale"])  # half precision
    assert (tmp_path / "e.paths.txt").read_text().split("\t")[0] == images.paths[0]
    wanted = Retrieval(open_images(words[1]), None).measure({"embeddings": torch.from_numpy(found)}, True, 0)
    wanted |= {"norm_mean": float(np.linalg.norm(found, axis=1).mean())}
    last = measure_run(trained, words[1])["last"]
    assert {name: last[name] for name in wanted} == pytest.approx(wanted)


def test_faces_in_memory_are_cut_as_files_without_landmarks_are(faces: Path, trained: Path, tmp_path: Path) -> None:
    run = load_run(trained, "cpu")
    assert not run.recipe.data.align
    files = sorted((faces / "people").glob("Person_*/[01].png"))
    wanted = run.embed(files)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(run.embed([Image.open(file) for file in files]), wanted)
    aligned = replace(run, recipe=replace(run.recipe, data=replace(run.recipe.data, align=True)))
    framed_already = [Image.open(file).resize((112, 112)) for file in files[:2]]
    with pytest.warns(CroppedFacesWarning) as caught:
        found = aligned.embed([*framed_already, *map(Image.open, files)])
    assert caught[0].message.count == len(files) and caught[0].filename == __file__, "at the caller's line"
    torch.testing.assert_close(found[2:], wanted)
    pixels = torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in framed_already])
    torch.testing.assert_close(found[:2], mirrored(run.model, pixels), rtol=1e-4, atol=1e-5)


def test_of_numbers_evaluate_cannot_tell_who_they_are(faces: Path, trained: Path, tmp_path: Path) -> None:
    files = sorted((faces / "people").glob("Person_*/[01].png"))
    rows = [f"{file},{file.parent.name[-1]}\n" for file in files]  # those trained on, under other names
    (tmp_path / "numbers.csv").write_text("path,label\n" + "".join(rows))
    run = load_run(trained, "cpu")
    data = replace(run.recipe.data, probes=str(tmp_path / "numbers.csv"))
    tested = measure_run(replace(run, recipe=replace(run.recipe, data=data)))["tested"]
    assert tested == "test images; whether their people were trained on is not known"


def test_evaluate_says_which_people_have_the_name_of_one_trained_on(
    faces: Path, trained: Path, tmp_path: Path, capsys
) -> None:
    own_pairs(faces, tmp_path / "own", ROWS)
    words = ["--data.pairs", "mine", "--data.pairs_root", tmp_path / "own", "--data.probes=", "--data.distractors="]
    code, shown, err = command(capsys, "evaluate", trained, "--device", "cpu", *words)
    shown = " ".join(shown.split())
    assert code == 0 and "test images; 6 of 6 people have the name of one trained on" in shown, err
    assert json.loads((trained / "result.json").read_text())["tested"] == "test images, not trained on"


def test_photographs_to_test_on_are_not_trained_on(faces: Path, tmp_path: Path, capsys) -> None:
    own_pairs(faces, tmp_path / "own", ROWS)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "own" / "people")
    changes = {"data__root": link, "data__pairs_root": tmp_path / "own", "data__pairs": "mine"}
    words = options(faces, **changes, data__probes="", data__distractors="")
    code, _, err = command(capsys, "train", "lfw-cosface-sec", "--out", tmp_path / "run", "--device", "cpu", *words)
    assert code == 2 and "11 of 11 " in err and "Person_1, " in err, err
    assert "--data.exclude" in err and len(err.strip().splitlines()) == 1 and not (tmp_path / "run").exists()
    (tmp_path / "leave.txt").write_text("\n".join(f"Person_{n}" for n in range(1, 7)))
    recipe = recipe_of(faces, **changes, data__probes="", data__distractors="", data__exclude=tmp_path / "leave.txt")
    assert build_task(recipe.data, CPU).images.classes == ["Person_0", "Person_7", "Tess_Ted"]


def test_people_to_test_on_with_the_name_of_one_to_train_on_are_reported(faces: Path, tmp_path: Path) -> None:
    own_pairs(faces, tmp_path / "own", ROWS)
    changes = {"data__pairs_root": tmp_path / "own", "data__pairs": "mine", "data__probes": "", "data__distractors": ""}
    with warned({CopiesWarning: 11, NamesakesWarning: 6}):
        build_task(recipe_of(faces, **changes).data, CPU)


def test_distractors_are_not_trained_on_either(faces: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainedPhotographs) as caught:
        build_task(recipe_of(faces, data__distractors=faces / "people" / "Person_3").data, CPU)
    assert (caught.value.shared, caught.value.people, caught.value.option) == (4, ["Person_3"], overlap.EXCLUDE)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "z.png").symlink_to(faces / "people" / "Person_5" / "0.png")
    with pytest.raises(TrainedPhotographs) as caught:
        build_task(recipe_of(faces, data__distractors=tmp_path / "links").data, CPU)
    assert (caught.value.shared, caught.value.people) == (1, ["Person_5"])
    with pytest.raises(RepeatedDistractors) as caught:
        build_task(recipe_of(faces, data__distractors=f"{faces / 'more'},{faces / 'more'}").data, CPU)
    assert (caught.value.repeated, caught.value.distractors) == (10, 20)
    shutil.copytree(faces / "people" / "Person_3", tmp_path / "person 3")
    with warned({CopiesWarning: 4, NamesakesWarning: 1}) as caught:
        build_task(recipe_of(faces, data__distractors=tmp_path / "person 3").data, CPU)
    assert ["Person_3"] in [one.message.names for one in caught]


def test_people_to_identify_with_the_name_of_a_distractor_are_reported(faces: Path, tmp_path: Path, recwarn) -> None:
    for name in ("P60", "P65", "P99", "123"):
        save(tmp_path / "others" / name / "0.png", 60, 7)
    save(tmp_path / "probes" / "123" / "0.png", 61, 8)  # a number names nobody
    shutil.copytree(faces / "probes", tmp_path / "probes", dirs_exist_ok=True)
    places = {"data__probes": tmp_path / "probes", "data__distractors": tmp_path / "others"}
    with pytest.warns(NamesakesWarning) as caught:
        build_task(recipe_of(faces, **places).data, CPU)
    assert ["P60", "P65"] in [one.message.names for one in caught]


def test_pairs_of_one_kind_are_refused_before_anything_is_written(faces: Path, tmp_path: Path) -> None:
    for kind, people in ((1, "one person"), (0, "two people")):
        own_pairs(faces, tmp_path / f"own{kind}", [row for row in ROWS if row.endswith(str(kind))])
        recipe = recipe_of(faces, data__pairs_root=tmp_path / f"own{kind}", data__pairs="mine")
        with pytest.raises(OneKindOfPairs) as caught:
            loop.fit(recipe, tmp_path / "run", "cpu")
        assert (caught.value.name, caught.value.count, caught.value.people) == ("mine", 5, people)
        assert not (tmp_path / "run").exists()


def test_a_single_process_embeds_without_a_copy_of_the_pixels(faces: Path, trained: Path, monkeypatch) -> None:
    run, images = load_run(trained, "cpu"), framed(open_images(str(faces / "probes")), WHOLE, workers=0)
    wanted = embed(run.model, images.subset(range(len(images))), None, CPU)
    monkeypatch.setattr(type(images), "subset", lambda *_: pytest.fail("the pixels were copied"))
    assert torch.equal(embed(run.model, images, None, CPU), wanted)


@pytest.mark.filterwarnings("default::UserWarning")
def test_only_results_go_to_stdout_and_notes_are_lines(faces: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "exclude.txt").write_text("Tess Ted\nNo Body\n")
    changes = {"data__exclude": tmp_path / "exclude.txt", "data__pairs": "lfw", "loop__steps": 1, "loop__eval_every": 1}
    words = ["lfw-cosface-sec", "--out", tmp_path / "run", "--device", "cpu", *options(faces, **changes)]
    code, shown, err = command(capsys, "train", *words)
    assert code == 0 and shown.splitlines()[0].strip() == "test images, not trained on; metrics in %"
    assert "framing" not in shown and "No Body" not in shown
    (line,) = (line for line in err.splitlines() if "No Body" in line)
    assert line.startswith("isosphere: 1 of 2 names to leave out are not among the 10 people")
    assert "warn(" not in err and "UserWarning" not in err and "identities(" not in err
    folder, before = tmp_path / "again", {"FORCE_COLOR": "1", "TERM": "xterm"}
    for name, value in before.items():  # as on a screen
        monkeypatch.setenv(name, value)
    words[words.index(tmp_path / "run")] = folder
    assert re.search(r"identifying[^\r\n]*100%", command(capsys, "train", *words)[2])


@pytest.mark.filterwarnings("ignore::isosphere.errors.CroppedFacesWarning")
def test_the_code_in_the_docs_runs(faces: Path, trained: Path, tmp_path: Path, monkeypatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "guides" / "faces.md").read_text()
    code = text.split("```python\n")[1].split("```")[0].replace("[0.01]", "[0.5]").replace("(1_000, 10_000)", "(5, 12)")
    (tmp_path / "pairs").symlink_to(faces)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SETS, "cfp_fp", SETS["cfp_fp"]._replace(pairs=40))
    *others, last = code.strip().split("\n")
    accuracy, tar = others.pop(-2), others.pop(-1)
    assert "verification" in accuracy and "tar_at_far" in tar
    probes, distractors = torch.randn(2, 12, 16, generator=torch.Generator().manual_seed(0))
    names = {"model": load_run(trained, "cpu").model, "probes": probes, "distractors": distractors}
    names["labels"] = torch.arange(12) // 3
    with torch.no_grad():
        exec("\n".join(others), names)
    found = json.loads((trained / "result.json").read_text())["last"]
    assert eval(accuracy, names) == pytest.approx(found["cfp_fp"])
    assert 0 <= eval(tar, names)[0.5] <= 1 and eval(last, names).keys() >= {"rank1@5", "rank1@12"}


def interrupted(recipe: schema.Recipe, folder: Path, step: int) -> None:
    """Train up to this step, save and leave."""
    asked, loop._asked_to_stop = loop._asked_to_stop, lambda run, caught: run.step == step
    try:
        with pytest.raises(Interrupted):
            loop.fit(recipe, folder, "cpu")
    finally:
        loop._asked_to_stop = asked


def test_a_broken_run_ends_in_the_same_bits(faces: Path, trained: Path, tmp_path: Path) -> None:
    """With dropout, flips and the ramp of eta in it."""
    recipe = read_recipe(trained)
    interrupted(recipe, tmp_path / "broken", 3)
    assert measure_run(load_run(tmp_path / "broken", "cpu"))["tested"].endswith("; the run was stopped at step 3")
    loop.fit(recipe, tmp_path / "broken", "cpu", resume=True)
    assert "stopped" not in measure_run(load_run(tmp_path / "broken", "cpu"))["tested"]
    same_weights(saved(tmp_path / "broken"), saved(trained))
    last, again = (json.loads((path / "result.json").read_text())["last"] for path in (trained, tmp_path / "broken"))
    assert last == again


def test_people_left_out_are_not_trained_on(faces: Path, trained: Path) -> None:
    assert saved(trained)["classes"] == [f"Person_{n}" for n in range(8)], "neither Tess_Ted nor Una, who has one image"
    task = build_task(read_recipe(trained).data, CPU)
    assert len(task.images) == 32 and torch.equal(task.images.labels, torch.arange(8).repeat_interleave(4))
    assert "LFW has 40 pairs, not 6,000" in "; ".join(task.notes) and "CFP-FF has 40 pairs" in "; ".join(task.notes)


# ---------------------------------------------------------------- where faces come from


@pytest.mark.filterwarnings("ignore::isosphere.errors.CroppedFacesWarning")
def test_faces_are_aligned_by_their_landmarks_or_cut_from_the_center(faces: Path) -> None:
    data = recipe_of(faces, data__pairs="cfp_fp").data
    files = sorted((faces / "people").glob("Person_*/*.png"))
    assert not data.align and data.fraction == 0.52
    cut = pixels_of(build_task(data, CPU).images)
    assert torch.equal(cut, torch.stack([FaceView(fraction=0.52)(decode(file)) for file in files]))

    aligned = build_task(find("casia-cosface", fields(faces, data__pairs="cfp_fp", data__min_images=2)).data, CPU)
    points = {}
    for line in (faces / "people" / "landmarks.txt").read_text().splitlines():
        name, *values = line.split()
        points[name] = torch.tensor(list(map(float, values)), dtype=torch.float64).view(5, 2)
    wanted = [align(decode(file), points["/".join(file.parts[-2:])]) for file in files]
    found = pixels_of(aligned.images)
    assert torch.equal(found, torch.stack(wanted)) and not torch.equal(found, cut)
    for note in ("cfp: 20 of 20 faces have no landmarks", "probes: 18 of 18 faces", "others.csv: 10 of 10 faces"):
        assert note in "; ".join(aligned.notes)
    assert "people: " not in "; ".join(aligned.notes)


def test_faces_in_their_frame_stay_as_they_are(faces: Path, tmp_path: Path) -> None:
    """Aligned copies of LFW keep its layout: they must not be cut again as its photographs are."""
    for file in (faces / "lfw").glob("*/*.png"):
        path = tmp_path / "lfw" / file.relative_to(faces / "lfw")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(FaceView()(decode(file))))
    (tmp_path / "lfw" / "pairs.txt").write_text((faces / "lfw" / "pairs.txt").read_text())
    plain = {"data__pairs": "lfw", "data__probes": "", "data__distractors": ""}
    wanted = pixels_of(build_task(recipe_of(faces, **plain).data, CPU).evaluation.images)
    found = build_task(recipe_of(faces, **plain, data__pairs_root=tmp_path).data, CPU).evaluation.images
    assert torch.equal(pixels_of(found), wanted)


@pytest.mark.filterwarnings("ignore::isosphere.errors.UnreadableImagesWarning")
def test_unreadable_faces_may_be_left_out_and_are_recorded(faces: Path, tmp_path: Path) -> None:
    shutil.copytree(faces / "people", tmp_path / "people")
    broken = tmp_path / "people" / "Person_3" / "1.png"
    broken.write_bytes(b"no image")
    data = recipe_of(faces, data__root=tmp_path / "people", data__pairs="lfw").data
    with raised(UnreadableImages, total=32) as caught:
        build_task(data, CPU)
    assert [failure.path for failure in caught.value.failures] == [str(broken)]
    task = build_task(replace(data, skip_unreadable=True), CPU)
    wanted = [str(file) for file in sorted((tmp_path / "people").glob("Person_*/*.png")) if file != broken]
    assert task.images.paths == wanted and len(task.images) == 31
    assert "people: 1 of 32 images are unreadable" in "; ".join(task.notes)
    (tmp_path / "bad.csv").write_text(f"path,label\n{broken},a\n")
    with raised(UnreadableImages, total=1):
        build_task(replace(data, skip_unreadable=True, distractors=(str(tmp_path / "bad.csv"),)), CPU)


def eyes(path: Path, apart: int, side: int = 250) -> None:
    """A dark photograph with two white eyes so many pixels apart, in its middle."""
    pixels = np.zeros((side, side, 3), np.uint8)
    for left in ((side - apart) // 2, (side + apart) // 2):
        pixels[side // 2 - 4 : side // 2 + 4, left - 4 : left + 4] = 255
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def eye_distance(face: Tensor) -> float:
    """Between the middles of the white in the left and in the right half."""
    weights = face.float().mean((0, 1))
    left, right = (float((half * torch.arange(56)).sum() / half.sum()) for half in weights.view(2, 56))
    return 56 + right - left


@pytest.mark.filterwarnings("ignore:.*are byte copies")
def test_each_set_is_framed_by_its_own_share(faces: Path, tmp_path: Path) -> None:
    """Training photographs and singles are scenes as LFW's, probes are cut to the face, others have more around it."""
    for person in "AB":
        for number in range(2):
            eyes(tmp_path / "people" / person / f"{number}.png", 40)
            eyes(tmp_path / "probes" / f"{person}2" / f"{number}.png", 40, side=130)
    for number in range(3):
        eyes(tmp_path / "singles" / f"{number}.png", 40)
        eyes(tmp_path / "wild" / f"{number}.png", 20)
        eyes(tmp_path / "other" / "wild" / f"{number}.png", 20)
    places = {"data__root": tmp_path / "people", "data__exclude": "", "data__probes": tmp_path / "probes"}
    places["data__distractors"] = f"{tmp_path / 'singles'}:0.52,{tmp_path / 'wild'}:0.26,{tmp_path / 'other' / 'wild'}"
    task = build_task(recipe_of(faces, **places).data, CPU)
    wanted, (near, middle, far) = 112 * 40 / 130, task.evaluation.distractors.values()
    assert list(task.evaluation.distractors) == ["singles-1", "wild-2", "wild-3"]
    for images in (task.images, task.evaluation.probes, near, middle):
        assert [eye_distance(face) for face in pixels_of(images)] == pytest.approx([wanted] * len(images), abs=0.6)
    whole = [eye_distance(face) for face in pixels_of(far)]
    assert whole == pytest.approx([112 * 20 / 250] * 3, abs=0.6), "without a share they are taken whole"


def test_any_backbone_of_timm_trains_on_faces(faces: Path, tmp_path: Path) -> None:
    """A vision transformer too, which is made for one size of image."""
    plain = {"data__pairs": "lfw", "data__probes": "", "data__distractors": "", "loop__steps": 1}
    recipe = recipe_of(faces, **plain, model__backbone="vit_tiny_patch16_224", batches__size=4)
    assert 0 <= loop.fit(recipe, tmp_path / "run", "cpu")["last"]["accuracy"] <= 1
    assert load_run(tmp_path / "run", "cpu").model.backbone.pos_embed.shape[1] == 1 + (112 // 16) ** 2


def test_framed_faces_know_their_files(faces: Path, trained: Path) -> None:
    evaluation = build_task(read_recipe(trained).data, CPU).evaluation
    views = {"lfw": FaceView(), "cfp_fp": WHOLE, "cfp_ff": WHOLE}
    for pairs in evaluation.pairs:
        assert len(pairs.images.paths) == len(pairs.images)
        seen = torch.stack([views[pairs.name](decode(path)) for path in pairs.images.paths])
        assert torch.equal(pixels_of(pairs.images), seen)
    listed = [*sorted((faces / "more").iterdir()), *sorted((faces / "listed").iterdir())]
    found = [path for images in evaluation.distractors.values() for path in images.paths]
    assert found == list(map(str, listed)) and len(evaluation.probes.paths) == 18
    kept = (trained / "test_paths.txt").read_text().splitlines()
    assert kept == evaluation.images.paths


def test_view_1_of_lfw_is_judged_in_tenths_of_each_kind(faces: Path, tmp_path: Path) -> None:
    rows = [f"N{20 + n % 10}\t{1 + n // 10}\t{2 + n // 10}" for n in range(20)]
    rows += [f"N{20 + n % 10}\t{1 + n // 10}\tN{20 + (n + 3) % 10}\t{2 - n // 10}" for n in range(20)]
    (tmp_path / "lfw").mkdir()
    (tmp_path / "lfw" / "pairsDevTest.txt").write_text("\n".join(["20", *rows]) + "\n")
    for folder in (faces / "lfw").glob("N*"):
        (tmp_path / "lfw" / folder.name).symlink_to(folder)
    plain = {"data__pairs": "lfw_dev", "data__pairs_root": tmp_path, "data__probes": "", "data__distractors": ""}
    last = loop.fit(recipe_of(faces, **plain), tmp_path / "run", "cpu")["last"]
    pairs = read_pairs("lfw_dev", tmp_path, allow_missing=True)
    model = load_run(tmp_path / "run", "cpu").model
    embeddings = mirrored(model, torch.stack([FaceView()(decode(path)) for path in pairs.images.paths]))
    fold = torch.tensor([place // 2 for place in range(20)] * 2)  # two of a kind in each
    expected = verified(embeddings[pairs.left], embeddings[pairs.right], pairs.same, fold)
    assert last["lfw_dev"] == last["accuracy"] == pytest.approx(expected["accuracy"])


def test_true_accepts_are_reported_where_impostors_are_enough(faces: Path, trained: Path, monkeypatch) -> None:
    run = load_run(trained, "cpu")
    assert not [name for name in measure_run(run)["last"] if "tar@" in name], "1 % of 20 impostor pairs decides nothing"
    monkeypatch.setattr(face_task, "FARS", (0.5, 0.001))
    found = measure_run(run)["last"]
    pairs = read_pairs("lfw", faces, allow_missing=True)
    embeddings = mirrored(run.model, torch.stack([FaceView()(decode(path)) for path in pairs.images.paths]))
    cosines = torch.cosine_similarity(embeddings[pairs.left].double(), embeddings[pairs.right].double())
    bound = cosines[~pairs.same].sort(descending=True).values[10]  # the eleventh impostor is one too many
    assert found["lfw_tar@0.5"] == pytest.approx(float((cosines[pairs.same] > bound).double().mean()))
    assert "lfw_tar@0.001" not in found


def record_pair(folder: Path, images: list[tuple[int, bytes]]) -> None:
    """train.rec and train.idx with whole records."""
    out, index = bytearray(), ""
    for key, (label, encoded) in enumerate(images):
        data = struct.pack("<IfQQ", 0, label, key, 0) + encoded
        index += f"{key}\t{len(out)}\n"
        out += struct.pack("<II", 0xCED7230A, len(data)) + data + b"\0" * (-len(data) % 4)
    folder.mkdir()
    (folder / "train.rec").write_bytes(out)
    (folder / "train.idx").write_text(index)


def encoded(pixels: Tensor) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(out, "png")
    return out.getvalue()


def test_records_and_packs_give_the_run_that_folders_give(faces: Path, tmp_path: Path, monkeypatch) -> None:
    people = open_images(str(faces / "people"))
    labels = (7 * people.labels).tolist()
    record_pair(tmp_path / "rec", [(n, Path(p).read_bytes()) for n, p in zip(labels, people.paths, strict=True)])
    pairs = read_pairs("lfw", faces, allow_missing=True)
    pixels = framed(pairs.images, FaceView(), workers=0).pixels
    order = torch.stack([pairs.left, pairs.right], 1).flatten().tolist()
    pack = [encoded(pixels[index]) for index in order], pairs.same.tolist()
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "lfw.bin").write_bytes(pickle.dumps(pack))
    monkeypatch.setitem(SETS, "lfw", SETS["lfw"]._replace(pairs=40))

    plain = {"data__fraction": 1.0, "data__pairs": "lfw", "data__probes": "", "data__distractors": "", "loop__steps": 2}
    plain |= {"data__min_images": 1, "data__exclude": "", "data__allow_missing": "false"}
    found = loop.fit(recipe_of(faces, **plain), tmp_path / "folders", "cpu")
    places = {"data__root": tmp_path / "rec", "data__pairs_root": tmp_path / "packs"}
    again = loop.fit(recipe_of(faces, **plain | places), tmp_path / "records", "cpu")
    assert saved(tmp_path / "records")["classes"] == [str(7 * n) for n in range(10)]
    same_weights(saved(tmp_path / "records"), saved(tmp_path / "folders"))
    assert found["notes"] == again["notes"] == []
    assert found["tested"] == "test images, not trained on"
    assert again["tested"] == "test images; whether their people were trained on is not known"
    names = ("accuracy", "lfw", "lfw_auc")
    assert [again["last"][name] for name in names] == pytest.approx([found["last"][name] for name in names])


def test_a_pack_of_pictures_that_are_not_square_is_reported_once(faces: Path, tmp_path: Path) -> None:
    pictures = [encoded(torch.full((3, 112, 96), 10 * n, dtype=torch.uint8)) for n in range(20)]
    (tmp_path / "mine.bin").write_bytes(pickle.dumps((pictures, [True, False] * 5)))
    plain = {"data__pairs": "mine", "data__pairs_root": tmp_path, "data__probes": "", "data__distractors": ""}
    with warned({CroppedFacesWarning: 20}) as caught:
        task = build_task(recipe_of(faces, **plain).data, CPU)
    assert any(str(caught[0].message) in note for note in task.notes)
    assert task.evaluation.images.pixels.shape == (20, 3, 112, 112)


@pytest.mark.parametrize(
    "changes, kind, wanted",
    [
        ({"data__root": ""}, BadArgument, {"name": Option("data.root")}),
        ({"data__root": "nowhere"}, FileNotFoundError, {}),
        ({"data__pairs_root": "nowhere"}, FileNotFoundError, {}),
        ({"data__pairs_root": ""}, BadArgument, {"name": Option("data.pairs_root")}),
        ({"data__pairs": ""}, BadArgument, {"name": Option("data.pairs")}),
        ({"data__pairs": "lwf"}, ValueError, {}),
        ({"data__pairs": "agedb_30"}, FileNotFoundError, {}),
        ({"data__allow_missing": "false"}, ValueError, {}),
        ({"data__exclude": "nobody.txt"}, FileNotFoundError, {}),
        ({"data__min_images": 5}, ValueError, {}),
        ({"data__fraction": 1.2}, BadArgument, {"name": Option("data.fraction"), "value": 1.2}),
        ({"data__root": "FACES/alone", "data__exclude": ""}, TooFewClasses, {"use": "train", "found": 1}),
        ({"data__distractors": "FACES/more:1.5"}, BadArgument, {"name": Option("data.distractors")}),
        ({"data__probes": "FACES/nobody:0.5"}, FileNotFoundError, {}),
        ({"data__distractors": ""}, Incompatible, {"fields": ("data.probes", "data.distractors")}),
        ({"data__probes": "FACES/more"}, ValueError, {}),
        ({"data__probes": "FACES/others.csv"}, SinglePhotographs, {}),
        ({"classes__rate": 0.5, "optimizer": "Adam"}, Incompatible, {"fields": ("classes.rate", "optimizer")}),
        ({"classes__shard": "true", "loss": "Softmax"}, Incompatible, {"fields": ("classes", "loss")}),
        ({"model__freeze_bn": "true"}, Incompatible, {"fields": ("model.freeze_bn", "model.weights")}),
    ],
)
def test_what_cannot_be_trained_is_one_line(faces: Path, tmp_path, capsys, monkeypatch, changes, kind, wanted) -> None:
    monkeypatch.chdir(tmp_path)
    changes = {name: str(value).replace("FACES", str(faces)) for name, value in changes.items()}
    with pytest.raises(kind) as caught:
        loop.fit(recipe_of(faces, **changes), tmp_path / "run", "cpu")
    assert wanted.items() <= vars(caught.value).items()
    words = ["lfw-cosface-sec", "--out", "run", "--device", "cpu", *options(faces, **changes)]
    code, _, err = command(capsys, "train", *words)
    assert code == 2 and len(err.strip().splitlines()) == 1, err
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- class weights on two ranks, and drawn classes

EXACT = {"loop__precision": "float64", "model__head": "bn_fc", "classes__shard": "true", "data__pairs": "lfw"}
EXACT |= {"data__probes": "", "data__distractors": "", "batches__size": 8, "loop__steps": 4, "loop__eval_every": 4}
EXACT |= {"constraint__eta": 0.05, "optimizer__lr": 0.002}  # without ArcFace's last batch norm 5 is far too strong
CLIP = 0.3


def framing_on_a_rank(data: schema.Faces, folder: str) -> dict:
    """What this rank framed itself, what it has, and whether that is a file which all of them map."""
    tempfile.tempdir, counts, plain = folder, [], frames.alignment.framed
    frames.alignment.framed = lambda images, *rest: counts.append(len(images)) or plain(images, *rest, workers=0)
    task = build_task(data, CPU)
    sets = [task.images, *(pairs.images for pairs in task.evaluation.pairs), task.evaluation.probes]
    sets += task.evaluation.distractors.values()
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {line.split()[4] for line in lines if folder in line and "pixels.npy" in line}  # inodes
    held = [(one.pixels.clone(), one.labels, one.classes, one.paths) for one in sets]
    return {"counts": counts, "sets": held, "mapped": mapped, "deviation": "; ".join(task.notes)}


def on_a_rank(
    recipes: list[schema.Recipe], recipe: schema.Recipe, ours: Path, theirs: Path, data: schema.Faces, folder: str
) -> list[dict]:
    """Traces of recipes; a run broken off; one that another number of processes broke off, to its end; frames."""
    traces = ranks.our_loop(recipes)
    interrupted(recipe, ours, 2)
    loop.fit(recipe, theirs, "cpu", resume=True)
    return [*traces, framing_on_a_rank(data, folder)]


@pytest.fixture(scope="module")
def both(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list, list, Path]:
    recipes = [
        recipe_of(faces, "lfw-arcface-sec", **EXACT),
        recipe_of(faces, "lfw-cosface-sec-ema", **EXACT | {"model__head": "dropout_fc_bn"}, loop__clip=CLIP),
    ]
    folder = tmp_path_factory.mktemp("ranks")
    recipe = recipe_of(faces, "lfw-arcface-sec", **EXACT)
    loop.fit(recipe, folder / "whole", "cpu")
    interrupted(recipe, folder / "one", 2)
    (folder / "temporary").mkdir()
    asked = recipe_of(faces, data__pairs="lfw", data__cache="none").data, str(folder / "temporary")
    together = ranks.on_ranks(2, on_a_rank, recipes, recipe, folder / "two", folder / "one", *asked)
    loop.fit(recipe, folder / "two", "cpu", resume=True)
    return ranks.our_loop(recipes), together, folder


@pytest.mark.parametrize("number", [0, 1], ids=["arcface, SEC", "cosface, SEC-EMA, clipped"])
def test_sharded_classes_on_two_ranks_are_one_process(both: tuple[list, list, Path], number: int) -> None:
    wanted, (first, second) = both[0][number], (traces[number] for traces in both[1])
    for found in (first, second):
        torch.testing.assert_close(torch.tensor(found["losses"]), torch.tensor(wanted["losses"]), rtol=1e-9, atol=0)
        for part in ("statistics", "constraint"):
            for name, value in wanted[part].items():
                torch.testing.assert_close(found[part][name], value, rtol=1e-7, atol=1e-9)
    for part in ("gradients", "weights"):
        assert len(first[part]["1.weights"]) == len(second[part]["1.weights"]) == 4, "each holds half of the classes"
        for name, value in wanted[part].items():
            for found in (first, second):
                own = torch.cat([first[part][name], second[part][name]]) if name == "1.weights" else found[part][name]
                torch.testing.assert_close(own, value, rtol=1e-7, atol=1e-9)
    length = math.sqrt(sum(float(gradient.square().sum()) for gradient in wanted["gradients"].values()))
    assert length == pytest.approx(CLIP, rel=1e-4) if number else length > CLIP


def test_checkpoints_go_from_two_ranks_to_one_and_back(both: tuple[list, list, Path]) -> None:
    folder = both[2]
    for other in ("one", "two"):
        same_weights(saved(folder / other), saved(folder / "whole"), exactly=False)
        found, wanted = (json.loads((folder / run / "result.json").read_text()) for run in (other, "whole"))
        assert found["last"]["accuracy"] == pytest.approx(wanted["last"]["accuracy"])


def test_ranks_share_the_frames_of_one(faces: Path, both: tuple[list, list, Path]) -> None:
    data = recipe_of(faces, data__pairs="lfw").data
    first, second = both[1][0][-1], both[1][1][-1]
    task = build_task(data, CPU)
    wanted = [task.images, task.evaluation.images, task.evaluation.probes, *task.evaluation.distractors.values()]
    assert first["counts"] == [len(task.evaluation.images), 18, 10, 10, 32] and second["counts"] == []
    for found in (first, second):
        for (pixels, labels, classes, paths), one in zip(found["sets"], wanted, strict=True):
            assert torch.equal(pixels, pixels_of(one)) and torch.equal(labels, one.labels)
            assert (classes, paths) == (one.classes, one.paths)
        assert found["deviation"] == "; ".join(task.notes)
    assert len(first["mapped"]) == 5 and first["mapped"] == second["mapped"], "the same files on both"
    assert not list((both[2] / "temporary").iterdir()), "nothing is left behind"


def test_drawn_classes_train_and_resume(faces: Path, tmp_path: Path) -> None:
    plain = {"data__pairs": "lfw", "data__probes": "", "data__distractors": "", "batches__size": 4}
    recipe = recipe_of(faces, "lfw-arcface-sec", **plain, classes__rate=0.5)
    found = loop.fit(recipe, tmp_path / "whole", "cpu")
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(line["loss"]) for line in lines if line["kind"] == "train") and found["last"]["accuracy"]
    interrupted(recipe, tmp_path / "broken", 3)
    assert measure_run(load_run(tmp_path / "broken", "cpu"))["tested"].endswith("; the run was stopped at step 3")
    loop.fit(recipe, tmp_path / "broken", "cpu", resume=True)
    assert "stopped" not in measure_run(load_run(tmp_path / "broken", "cpu"))["tested"]
    same_weights(saved(tmp_path / "broken"), saved(tmp_path / "whole"))
    assert int(saved(tmp_path / "whole")["criterion"]["draws"]) == 6
    exact = loop.fit(recipe_of(faces, "lfw-arcface-sec", **plain), tmp_path / "exact", "cpu")
    before = saved(tmp_path / "exact")["criterion"]["weights"]
    assert not torch.equal(before, saved(tmp_path / "whole")["criterion"]["weights"]) and exact["last"]["accuracy"]


# ---------------------------------------------------------------- lists for identification


def test_the_example_makes_the_lists(tmp_path: Path) -> None:
    lfw = {"Ann_Bee": 1, "Cat_Dee": 2, "George_W_Bush": 1, "Jo_Jones": 1, "Robert_De_Niro": 3, "Zeta-Jones": 1}
    for name, count in lfw.items():
        for number in range(count):
            save(tmp_path / "lfw" / name / f"{name}_{number + 1:04d}.jpg", len(name), number)
    for person in ("001", "002"):
        for kind in ("frontal", "profile"):
            save(tmp_path / "cfp" / "Data" / "Images" / person / kind / "01.jpg", int(person), 1)
    (tmp_path / "cfp" / "Data" / "list_name.txt").write_text("George Bush\nRobert DeNiro\nSomebody Else\nJo Jones\n")
    for number in (1, 3):
        save(tmp_path / "celeba" / "img_celeba" / f"00000{number}.jpg", number, 0)
    (tmp_path / "celeba" / "identity_CelebA.txt").write_text("000001.jpg 7\n000002.jpg 8\n000003.jpg 9\n")
    example = Path(__file__).parents[2] / "examples" / "face_lists.py"
    words = [sys.executable, str(example), *(str(tmp_path / name) for name in ("lfw", "cfp", "celeba"))]
    subprocess.run(words, check=True, capture_output=True)
    left_out = (tmp_path / "lfw" / "exclude_cfp.txt").read_text().split()
    assert left_out == ["George_W_Bush", "Jo_Jones", "Robert_De_Niro"]
    assert identities(tmp_path / "lfw", left_out, 2).classes == ["Cat_Dee"]
    assert open_images(str(tmp_path / "lfw" / "singles.csv")).classes == ["Ann_Bee", "Zeta-Jones"]
    frontal, wild = (open_images(str(tmp_path / name)) for name in ("cfp/frontal.csv", "celeba/images.csv"))
    assert frontal.classes == ["001", "002"] and all("frontal" in path for path in frontal.paths)
    assert wild.classes == ["7", "9"] and [Path(path).name for path in wild.paths] == ["000001.jpg", "000003.jpg"]


# ---------------------------------------------------------------- inspect, a table, and a GPU


def test_inspect_says_how_well_a_low_norm_predicts_an_error(tmp_path: Path, capsys) -> None:
    generator, labels = np.random.default_rng(0), np.arange(60) % 6
    lengths = generator.uniform(1, 5, (60, 1))
    embeddings = lengths * np.eye(6, 8)[labels] + generator.normal(0, 1.2, (60, 8))
    np.save(tmp_path / "e.npy", embeddings)
    np.save(tmp_path / "y.npy", labels)
    norms = np.linalg.norm(embeddings, axis=1)
    units = embeddings / norms[:, None]
    cosines = units @ units.T - 3 * np.eye(60)
    wrong = labels[cosines.argmax(1)] != labels
    won = [low < high for low in norms[wrong] for high in norms[~wrong]]
    code, shown, _ = command(capsys, "inspect", tmp_path / "e.npy", tmp_path / "y.npy")
    assert code == 0 and 5 < wrong.sum() < 55 and np.mean(won) > 0.6
    assert f"AUROC {np.mean(won):.3f}" in shown
    np.save(tmp_path / "e.npy", 2 * np.eye(6, 8)[labels])
    shown = command(capsys, "inspect", tmp_path / "e.npy", tmp_path / "y.npy")[1]
    assert "no AUROC of norms and errors: all first neighbors are right" in " ".join(shown.split())
    np.save(tmp_path / "e.npy", 2 * np.eye(60))  # all others are as near: the first is of another class
    np.save(tmp_path / "y.npy", np.arange(60) // 2 + 100 * (np.arange(60) % 2))
    shown = command(capsys, "inspect", tmp_path / "e.npy", tmp_path / "y.npy")[1]
    assert "all first neighbors are wrong" in " ".join(shown.split())


def test_reproduce_table_4(faces: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    words = ["--dataset", "lfw", "--losses", "cosface", "--methods", "none", "sec", "--seeds", "0"]
    words += [*options(faces, data__pairs="lfw,cfp_fp", loop__steps=2), "--device", "cpu"]
    code, shown, err = command(capsys, "reproduce", "table4", *words)
    assert code == 0, err
    (file,) = (tmp_path / "results").glob("faces_lfw*.json")
    text = file.read_text()
    assert str(faces) not in text, "records can be shared: no paths"
    held = json.loads(text)
    assert [(run["cell"], run["method"]) for run in held["runs"]] == [("lfw-cosface", "none"), ("lfw-cosface", "sec")]
    assert held["trials"] == []
    assert all({"accuracy", "lfw", "cfp_fp", "rank1@20"} <= run["last"].keys() for run in held["runs"])
    for word in ("LFW", "CFP-FP", "rank 1 of 20", "sec - none", "in the paper for lfw-cosface", "not comparable"):
        assert word in shown, word
    ours, papers = shown.split("printed in the paper", 1)
    assert "99.42" in papers and "99.42" not in ours and "megaface@1e6" in papers
    command(capsys, "reproduce", "table4", *words, "--out", "elsewhere")
    assert file.read_text() == text, "nothing is run twice"
    assert not (tmp_path / "elsewhere").exists()

    # Results on other people are not taken for these, and what a table is given later joins it in folders of its own.
    counts = {"images": 32, "people": 8, "pairs": 80, "probes": 18, "distractors": 20}
    assert all(run["counts"] == counts for run in held["runs"])
    shutil.copytree(faces / "people", "fewer")
    shutil.rmtree("fewer/Person_2")
    code, _, err = command(capsys, "reproduce", "table4", *words, "--data.root", "fewer")
    assert code == 2 and "faces_lfw" in err and "images 32 -> 28, people 8 -> 7" in err
    gone = ["--data.distractors", "gone/more,gone/others.csv"]
    for places in (["--data.root", "gone"], ["--data.root="], ["--data.pairs_root="], gone):
        code, shown, err = command(capsys, "reproduce", "table4", *words, *places)
        assert code == 0 and "0 runs made now" in err and "CFP-FP" in shown, "results are shown without the data, too"
    file.unlink()
    code, _, err = command(capsys, "reproduce", "table4", *words, "--data.root", "fewer")
    assert code == 2 and "images 32 -> 28" in err, "nor is a finished run's folder"
    code, shown, err = command(capsys, "reproduce", "table4", *words, "--data.distractors", str(faces / "more"))
    assert code == 0 and "2 runs made now" in err and "rank 1 of 10" in shown, err


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_thousand_captured_steps_in_half_precision(faces: Path, tmp_path: Path) -> None:
    changes = {"loop__steps": 1000, "loop__eval_every": 1000, "loop__save_every": 0, "loop__precision": "bfloat16"}
    recipe = recipe_of(faces, "lfw-arcface-sec", **changes, loop__compile="true", optimizer__lr=0.1)
    found = loop.fit(recipe, tmp_path / "run", "cuda")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    assert len(losses) == 1000 and all(map(math.isfinite, losses)) and losses[-1] < losses[0]
    assert 0 < found["last"]["accuracy"] <= 1

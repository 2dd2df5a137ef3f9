"""Faces through the one loop, on miniature LFW, CFP, probes and distractors: coloured patterns, one a person."""

import io
import json
import math
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import ranks
from isosphere import cli
from isosphere.data.alignment import WHOLE, FaceView, align, framed
from isosphere.data.faces import SETS, verification
from isosphere.data.images import decode
from isosphere.metrics.faces import auc, identification, norm_and_errors, pair_cosines, wrong_pairs
from isosphere.metrics.faces import verification as verified
from isosphere.recipes import find, schema
from isosphere.train import loop
from isosphere.train.evaluate import embed, embed_files, load_run, measure_run
from isosphere.train.state import CHECKPOINT
from isosphere.train.views import build_views, open_images

CPU = torch.device("cpu")
SMALL = {
    "data.allow_missing": "true", "model.backbone": "small_cnn", "model.dim": "16", "batches.size": "12",
    "loop.unit": "steps", "loop.steps": "6", "loop.eval_every": "6", "loop.save_every": "3", "loop.log_every": "1",
    "loop.workers": "0", "optimiser.lr": "0.02",
}  # fmt: skip
POINTS = np.array([(10, 12), (18, 12), (14, 16), (11, 20), (17, 20)], dtype=float)  # of every photograph


def photograph(person: int, number: int, side: int = 28) -> Image.Image:
    """The person's own pattern of 5 x 5 colours, blurred, lit and disturbed differently each time."""
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


def command(capsys: pytest.CaptureFixture, *words: object) -> tuple[int, str, str]:
    """`isosphere ...` in this process: exit code, stdout, stderr."""
    before, sys.argv = sys.argv, ["isosphere", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as left:
            cli.main()
    finally:
        sys.argv = before
    shown = capsys.readouterr()
    return left.value.code or 0, shown.out, shown.err


def options(root: Path, **changes: object) -> list[str]:
    return [word for name, value in fields(root, **changes).items() for word in (f"--{name}", value)]


def saved(folder: Path) -> dict:
    return torch.load(folder / CHECKPOINT, weights_only=True)


def same_weights(left: dict, right: dict, exactly: bool = True) -> None:
    for part in ("model", "criterion", "constraint"):
        assert left[part].keys() == right[part].keys()
        for name, value in left[part].items():
            if exactly:
                assert torch.equal(value, right[part][name]), name
            else:
                torch.testing.assert_close(value, right[part][name], rtol=1e-7, atol=1e-9)
    for number, moments in left["optimiser"]["state"].items():
        for name, value in moments.items():
            other = right["optimiser"]["state"][number][name]
            torch.testing.assert_close(value, other, rtol=0 if exactly else 1e-7, atol=0 if exactly else 1e-9)


# ---------------------------------------------------------------- from training to numbers


@pytest.fixture(scope="module")
def trained(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pairs = "lfw,cfp_fp,cfp_ff"
    folder = tmp_path_factory.mktemp("runs") / "whole"
    loop.fit(recipe_of(faces, data__pairs=pairs, loop__unit="epochs", loop__steps=3, loop__save_every=2), folder, "cpu")
    return folder


def mirrored(model: torch.nn.Module, pixels: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.stack([(model(one[None]) + model(one[None].flip(-1)))[0] / 2 for one in pixels])


def test_a_run_tells_verification_identification_and_what_the_norm_foretells(faces: Path, trained: Path) -> None:
    last = json.loads((trained / "result.json").read_text())["last"]
    run = load_run(trained, "cpu")
    accuracies = []
    for name, view in (("lfw", FaceView()), ("cfp_fp", WHOLE), ("cfp_ff", WHOLE)):
        pairs = verification(name, faces, allow_missing=True)
        embeddings = mirrored(run.model, torch.stack([view(decode(path)) for path in pairs.images.paths]))
        left, right = embeddings[pairs.left], embeddings[pairs.right]
        assert last[name] == pytest.approx(verified(left, right, pairs.same, pairs.fold)["accuracy"])
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
    assert {name for name in last if name.startswith("rank1@")} == {"rank1@20"}


def test_evaluate_and_embed_repeat_the_run(faces: Path, trained: Path, tmp_path: Path, capsys) -> None:
    last = json.loads((trained / "result.json").read_text())["last"]
    run = load_run(trained, "cpu")
    assert measure_run(run) == pytest.approx(last)
    code, shown, _ = command(capsys, "evaluate", trained, "--device", "cpu")
    assert code == 0 and "rank 1 of 20" in shown and "CFP-FP" in shown
    assert f"{100 * last['cfp_ff']:.1f}" in shown and f"{100 * last['rank1@20']:.1f}" in shown

    # `embed` sees photographs as the sets that are cut to the face, such as CFP, are seen.
    images = verification("cfp_ff", faces, allow_missing=True).images
    rows = [f"{path},{images.classes[label]}\n" for path, label in zip(images.paths, images.labels, strict=True)]
    (tmp_path / "cfp.csv").write_text("path,label\n" + "".join(rows))
    embed_files(run, str(tmp_path / "cfp.csv"), tmp_path / "cfp.npy")
    wanted = embed(run.model, framed(images, WHOLE, workers=0), None, CPU)
    np.testing.assert_allclose(np.load(tmp_path / "cfp.npy"), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_the_code_in_the_docs_runs(faces: Path, trained: Path, tmp_path: Path, monkeypatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "faces.md").read_text()
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
        with pytest.raises(loop.Interrupted):
            loop.fit(recipe, folder, "cpu")
    finally:
        loop._asked_to_stop = asked


def test_a_broken_run_ends_in_the_same_bits(faces: Path, trained: Path, tmp_path: Path) -> None:
    """With dropout, flips and the ramp of eta in it."""
    recipe = cli.read_recipe(trained)
    interrupted(recipe, tmp_path / "broken", 3)
    loop.fit(recipe, tmp_path / "broken", "cpu", resume=True)
    same_weights(saved(tmp_path / "broken"), saved(trained))
    last, again = (json.loads((path / "result.json").read_text())["last"] for path in (trained, tmp_path / "broken"))
    assert last == again


def test_people_left_out_are_not_trained_on(faces: Path, trained: Path) -> None:
    assert saved(trained)["classes"] == [f"Person_{n}" for n in range(8)], "neither Tess_Ted nor Una, who has one image"
    views = build_views(cli.read_recipe(trained).data, CPU)
    assert len(views.train) == 32 and torch.equal(views.train.labels, torch.arange(8).repeat_interleave(4))
    assert "LFW has 40 pairs, not 6,000" in views.deviation and "CFP-FF has 40 pairs" in views.deviation


# ---------------------------------------------------------------- where faces come from


def test_faces_are_aligned_by_their_landmarks_or_cut_from_the_centre(faces: Path) -> None:
    data = recipe_of(faces, data__pairs="cfp_fp").data
    files = sorted((faces / "people").glob("Person_*/*.png"))
    assert not data.align and data.fraction == 0.52
    cut = build_views(data, CPU).train.pixels
    assert torch.equal(cut, torch.stack([FaceView(fraction=0.52)(decode(file)) for file in files]))

    aligned = build_views(find("casia-cosface", fields(faces, data__pairs="cfp_fp", data__min_images=2)).data, CPU)
    points = {}
    for line in (faces / "people" / "landmarks.txt").read_text().splitlines():
        name, *values = line.split()
        points[name] = torch.tensor(list(map(float, values)), dtype=torch.float64).view(5, 2)
    wanted = [align(decode(file), points["/".join(file.parts[-2:])]) for file in files]
    assert torch.equal(aligned.train.pixels, torch.stack(wanted)) and not torch.equal(aligned.train.pixels, cut)


def test_faces_in_their_frame_stay_as_they_are(faces: Path, tmp_path: Path) -> None:
    """Aligned copies of LFW keep its layout: they must not be cut again as its photographs are."""
    for file in (faces / "lfw").glob("*/*.png"):
        path = tmp_path / "lfw" / file.relative_to(faces / "lfw")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(FaceView()(decode(file))))
    (tmp_path / "lfw" / "pairs.txt").write_text((faces / "lfw" / "pairs.txt").read_text())
    plain = {"data__pairs": "lfw", "data__probes": "", "data__distractors": ""}
    wanted = build_views(recipe_of(faces, **plain).data, CPU).exam.images.pixels
    found = build_views(recipe_of(faces, **plain, data__pairs_root=tmp_path).data, CPU).exam.images.pixels
    assert torch.equal(found, wanted)


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
    pairs = verification("lfw", faces, allow_missing=True)
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
    assert found["deviation"] == again["deviation"] == ""
    names = ("accuracy", "lfw", "lfw_auc")
    assert [again["last"][name] for name in names] == pytest.approx([found["last"][name] for name in names])


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"data__root": ""}, "data.root is empty: name a folder of people's folders"),
        ({"data__root": "nowhere"}, "nowhere is not a folder"),
        ({"data__pairs_root": ""}, "data.pairs_root is empty: name the folder of the verification sets"),
        ({"data__pairs": ""}, "data.pairs is empty: name at least one of lfw, "),
        ({"data__pairs": "lwf"}, "no pairs 'lwf'; there are lfw, "),
        ({"data__pairs": "agedb_30"}, "does not hold AgeDB-30: expected one of agedb_30.bin, agedb_30_pair.txt"),
        ({"data__allow_missing": "false"}, "CFP-FP has 40 pairs, not 7,000"),
        ({"data__exclude": "nobody.txt"}, "nobody.txt"),
        ({"data__min_images": 5}, "none has 5 images"),
        ({"data__distractors": ""}, "data.probes and data.distractors go together"),
        ({"data__probes": "FACES/more"}, "more holds no class folder"),
        ({"data__probes": "FACES/others.csv"}, "others.csv has no person with two photographs"),
        ({"classes__rate": 0.5, "optimiser": "Adam"}, "classes.rate below 1 needs --optimiser SGD"),
    ],
)
def test_what_cannot_be_trained_is_one_line(faces: Path, tmp_path: Path, capsys, monkeypatch, changes, told) -> None:
    monkeypatch.chdir(tmp_path)
    changes = {name: str(value).replace("FACES", str(faces)) for name, value in changes.items()}
    words = ["lfw-cosface-sec", "--out", "run", "--device", "cpu", *options(faces, **changes)]
    code, _, err = command(capsys, "train", *words)
    assert code == 2 and told in err and len(err.strip().splitlines()) == 1, err
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- class weights on two ranks, and drawn classes

EXACT = {"loop__precision": "float64", "model__head": "bn_fc", "classes__shard": "true", "data__pairs": "lfw"}
EXACT |= {"data__probes": "", "data__distractors": "", "batches__size": 8, "loop__steps": 4, "loop__eval_every": 4}
EXACT |= {"constraint__eta": 0.05, "optimiser__lr": 0.002}  # without ArcFace's last batch norm 5 is far too strong
CLIP = 0.3


def on_a_rank(recipes: list[schema.Recipe], recipe: schema.Recipe, ours: Path, theirs: Path) -> list[dict]:
    """Traces of recipes; a run that is broken off; and one that another number of processes broke off, to its end."""
    traces = ranks.our_loop(recipes)
    interrupted(recipe, ours, 2)
    loop.fit(recipe, theirs, "cpu", resume=True)
    return traces


@pytest.fixture(scope="module")
def both(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list, list, Path]:
    recipes = [
        recipe_of(faces, "lfw-arcface-sec", **EXACT),
        recipe_of(faces, "lfw-cosface-sec-ema", **EXACT, loop__clip=CLIP),
    ]
    folder = tmp_path_factory.mktemp("ranks")
    recipe = recipe_of(faces, "lfw-arcface-sec", **EXACT)
    loop.fit(recipe, folder / "whole", "cpu")
    interrupted(recipe, folder / "one", 2)
    together = ranks.on_ranks(2, on_a_rank, recipes, recipe, folder / "two", folder / "one")
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


def test_drawn_classes_train_and_resume(faces: Path, tmp_path: Path) -> None:
    plain = {"data__pairs": "lfw", "data__probes": "", "data__distractors": "", "batches__size": 4}
    recipe = recipe_of(faces, "lfw-arcface-sec", **plain, classes__rate=0.5)
    found = loop.fit(recipe, tmp_path / "whole", "cpu")
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(line["loss"]) for line in lines if line["kind"] == "train") and found["last"]["accuracy"]
    interrupted(recipe, tmp_path / "broken", 3)
    loop.fit(recipe, tmp_path / "broken", "cpu", resume=True)
    same_weights(saved(tmp_path / "broken"), saved(tmp_path / "whole"))
    assert int(saved(tmp_path / "whole")["criterion"]["draws"]) == 6
    exact = loop.fit(recipe_of(faces, "lfw-arcface-sec", **plain), tmp_path / "exact", "cpu")
    before = saved(tmp_path / "exact")["criterion"]["weights"]
    assert not torch.equal(before, saved(tmp_path / "whole")["criterion"]["weights"]) and exact["last"]["accuracy"]


# ---------------------------------------------------------------- inspect, a table, and a GPU


def test_inspect_tells_how_well_a_low_norm_foretells_an_error(tmp_path: Path, capsys) -> None:
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
    assert f"a low norm foretells an R@1 error with AUROC {np.mean(won):.3f}" in " ".join(shown.split())
    np.save(tmp_path / "e.npy", np.eye(6, 8)[labels])
    assert "AUROC" not in command(capsys, "inspect", tmp_path / "e.npy", tmp_path / "y.npy")[1], "no error, no AUROC"


def test_reproduce_table_4(faces: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    words = ["--dataset", "lfw", "--losses", "cosface", "--arms", "none", "sec", "--seeds", "0"]
    words += [*options(faces, data__pairs="lfw,cfp_fp", loop__steps=2), "--device", "cpu"]
    code, shown, err = command(capsys, "reproduce", "table4", *words)
    assert code == 0, err
    (file,) = (tmp_path / "results").glob("table4_lfw*.json")
    text = file.read_text()
    assert str(faces) not in text, "records can be shared: no paths"
    held = json.loads(text)
    assert [(run["cell"], run["arm"]) for run in held["runs"]] == [("lfw-cosface", "none"), ("lfw-cosface", "sec")]
    assert held["trials"] == []
    assert all({"accuracy", "lfw", "cfp_fp", "rank1@20"} <= run["last"].keys() for run in held["runs"])
    for word in ("LFW", "CFP-FP", "rank 1 of 20", "sec - none", "in the paper for lfw-cosface", "not comparable"):
        assert word in shown, word
    ours, papers = shown.split("printed in the paper", 1)
    assert "99.42" in papers and "99.42" not in ours and "megaface@1e6" in papers
    command(capsys, "reproduce", "table4", *words, "--out", "elsewhere")
    assert file.read_text() == text, "nothing is run twice"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_thousand_captured_steps_in_half_precision(faces: Path, tmp_path: Path) -> None:
    changes = {"loop__steps": 1000, "loop__eval_every": 1000, "loop__save_every": 0, "loop__precision": "bfloat16"}
    recipe = recipe_of(faces, "lfw-arcface-sec", **changes, loop__compile="true", optimiser__lr=0.1)
    found = loop.fit(recipe, tmp_path / "run", "cuda")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    assert len(losses) == 1000 and all(map(math.isfinite, losses)) and losses[-1] < losses[0]
    assert 0 < found["last"]["accuracy"] <= 1

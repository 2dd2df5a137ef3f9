"""Retrievals, feature maps and sketches: what is chosen and what angles are drawn, against loops and geometry."""

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from isosphere.errors import BadArgument, DamagedFile, MissingPart
from isosphere.paper import feature_maps
from isosphere.report import gallery, retrievals
from isosphere.report.records import embedded, read_folders
from isosphere.runs import Embedded, locate


def held(embeddings, labels, asks=None):
    """A test set, in which all images ask by default."""
    asks = np.ones(len(labels), bool) if asks is None else asks
    return Embedded(np.asarray(embeddings, np.float32), np.asarray(labels), [], asks)


def test_nearest_match_a_loop_without_self():
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(15, 4))
    embeddings[7] = 3 * embeddings[2]  # the same direction
    indices, scores, *_ = retrievals.nearest(held(embeddings, np.zeros(15, int)), [2, 5, 14], 3)
    for row, query in enumerate((2, 5, 14)):
        ranked = []
        for other in range(15):
            if other != query:
                lengths = np.linalg.norm(embeddings[query]) * np.linalg.norm(embeddings[other])
                ranked.append((-float(embeddings[query] @ embeddings[other]) / lengths, other))
        best = sorted(ranked)[:3]
        assert list(indices[row]) == [other for _, other in best]
        assert scores[row] == pytest.approx([-score for score, _ in best], abs=1e-6)
    assert indices[0, 0] == 7
    with pytest.raises(BadArgument):
        retrievals.nearest(held(embeddings, np.zeros(15, int)), [0], 15)


def test_the_lead_of_errors_against_a_loop():
    generator = np.random.default_rng(0)
    embeddings, labels = generator.normal(size=(40, 4)).astype(np.float32), generator.integers(0, 6, 40)
    labels[7] = 99  # a singleton: its errors are not the model's
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for asks in (np.ones(40, bool), np.arange(40) % 2 == 0):
        candidates = np.flatnonzero(asks)
        found = retrievals.nearest(held(embeddings, labels, asks), candidates, 5)
        for row, query in enumerate(candidates):
            others = [i for i in range(40) if i != query and (asks.all() or not asks[i])]
            ranked = sorted(others, key=lambda i: -unit[query] @ unit[i])
            assert found.indices[row].tolist() == ranked[:5]
            right = [unit[query] @ unit[i] for i in others if labels[i] == labels[query]]
            wrong = max(unit[query] @ unit[i] for i in others if labels[i] != labels[query])
            assert found.lead[row] == pytest.approx(wrong - max(right) if right else -np.inf, abs=1e-6)
            assert found.alone[row] == (not right)


def test_the_worst_errors_are_those_with_the_greatest_lead():
    assert retrievals.worst_errors(np.array([0.1, -0.2, 0.5, -np.inf, 0.0, 0.3]), 80) == [2, 5, 0, 4]
    lead = np.random.default_rng(0).normal(size=1000)
    assert set(retrievals.worst_errors(lead, 80)) == set(np.argsort(lead)[-80:].tolist())
    sample = retrievals.spread(1000, 120)
    assert len(sample) == 120 and sample[0] == 0 and sample[-1] == 999 and max(np.diff(sample)) <= 9


def test_queries_are_spread_over_classes_that_can_be_right():
    labels = np.array([0, 1, 1, 2, 2, 2, 3, 4, 4])
    for count in (3, 9):
        assert retrievals.evenly(held(np.ones((9, 2)), labels), count) == [2, 4, 8]
    with pytest.raises(BadArgument):
        retrievals.evenly(held(np.ones((4, 2)), np.arange(4)), 2)


def test_queries_with_a_gallery_of_their_own_search_that_alone(make_run, tmp_path):
    rng = np.random.default_rng(0)
    embeddings, labels = rng.normal(size=(12, 4)), np.arange(12) % 5
    asks = np.arange(12) < 6  # class 0 asks twice; all classes but 4 are in the gallery more than once
    shop = held(embeddings, labels, asks)
    indices = retrievals.nearest(shop, [0, 3], 6).indices
    assert [sorted(row) for row in indices] == [[6, 7, 8, 9, 10, 11]] * 2
    assert retrievals.evenly(shop, 5) == [5, 1, 2, 3, 4]
    with pytest.raises(BadArgument):
        retrievals.nearest(shop, [0], 7)
    run = make_run("shop")
    arrays = dict(np.load(run / "test_embeddings.npz"))
    asks = np.arange(len(arrays["labels"])) % 2 == 0
    np.savez(run / "test_embeddings.npz", is_query=asks, **arrays)
    pictures = [np.full((4, 4, 3), number, np.uint8) for number in range(len(asks))]
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            gallery, "_show", lambda panel, picture, words, *options: asked.append((words[:5], int(picture[0, 0, 0])))
        )
        gallery.gallery([run], tmp_path / "g", images=pictures)
    queries = {number for words, number in asked if words == "query"}
    found = {number for words, number in asked if words != "query"}
    assert len(queries) > 1 and all(asks[list(queries)]) and not any(asks[list(found)])


def test_the_gallery_reads_files_and_marks_right_and_wrong(make_run, tmp_path):
    runs = [make_run("a", seed=1), make_run("b", "cub200-triplet-sec", seed=2, data_root=tmp_path)]
    with pytest.raises(MissingPart):
        gallery.gallery(runs, tmp_path / "g")
    for number in range(24):
        Image.fromarray(np.full((6, 8, 3), 10 * number, np.uint8)).save(tmp_path / f"{number}.png")
    paths = [str(tmp_path / f"{number}.png") for number in range(24)]
    (runs[1] / "test_paths.txt").write_text("\n".join(paths))
    text = gallery.gallery(runs, tmp_path / "g", queries=[0, 9])[1].read_text()
    labels = np.load(runs[0] / "test_embeddings.npz")["labels"]
    right = 0
    for run in runs:
        indices = retrievals.nearest(embedded(read_folders([run])[0]), [0, 9], 3).indices
        right += int((labels[indices] == labels[[0, 9]][:, None]).sum())
    texts = ["".join(node.itertext()) for node in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert sum(words.startswith("✓") for words in texts) == right
    assert sum(words.startswith("✗") for words in texts) == 12 - right
    assert "class 0" in text and "class 2" in text
    (runs[1] / "test_paths.txt").write_text("\n".join(paths[:5]))
    with pytest.raises(DamagedFile):
        gallery.gallery(runs, tmp_path / "g")
    (runs[1] / "test_paths.txt").write_text("\n".join(["gone.png"] * 24))
    with pytest.raises(DamagedFile):
        gallery.gallery(runs, tmp_path / "g")
    with pytest.raises(BadArgument):
        gallery.gallery(runs, tmp_path / "g", queries=[24], images=[])


@pytest.mark.parametrize("channels", [1, 3])
def test_the_gallery_of_a_data_set_in_memory_shows_its_thumbnails_and_names(make_run, tmp_path, monkeypatch, channels):
    run = make_run(classes=["Zorro", "b", "c", "d", "e", "Black_footed_Albatross"])
    pixels = np.random.default_rng(0).integers(0, 255, (24, channels, 5, 7), dtype=np.uint8)
    np.savez(run / "test_thumbnails.npz", pixels=pixels)
    shown = []
    monkeypatch.setattr(gallery, "_show", lambda panel, picture, *_: shown.append(picture))
    gallery.gallery([run], tmp_path / "g", queries=[4])
    assert (shown[0] == np.moveaxis(np.repeat(pixels[4], 3 // channels, 0), 0, 2)).all()
    monkeypatch.undo()
    text = gallery.gallery([run], tmp_path / "g", queries=[0, 23])[1].read_text()
    assert ">Zorro<" in text and ">Black footed<" in text and "class 0" not in text
    np.savez(run / "test_thumbnails.npz", pixels=pixels[:3])
    with pytest.raises(DamagedFile):
        gallery.gallery([run], tmp_path / "g")


@pytest.mark.parametrize(
    ("written", "root", "image"),
    [
        ("photos/a/0.png", "photos", "photos/a/0.png"),  # from the folder of training, above the run
        ("old/photos/a/0.png", "ROOT/new/photos", "new/photos/a/0.png"),  # the photographs have moved
        ("a/0.png", "ROOT/photos", "photos/a/0.png"),  # below the root
        ("img/0.png", "lists/all.csv", "lists/img/0.png"),  # below the folder of a CSV
        ("photos/0.png", "ROOT/photos", "photos/photos/0.png"),  # a class that is called as the root
    ],
)
def test_test_images_are_found_from_any_folder(tmp_path, monkeypatch, written, root, image):
    for folder in (tmp_path / "runs" / "run", tmp_path / "elsewhere", (tmp_path / image).parent):
        folder.mkdir(parents=True)
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / image)
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = tmp_path / "runs" / "run"
    if root.endswith(".csv"):
        (tmp_path / root).touch()
    assert locate(written, root.replace("ROOT", str(tmp_path)), run).samefile(tmp_path / image)
    assert locate("gone/1.png", "photos", run) == Path("gone/1.png")


def test_runs_with_other_test_images_have_no_common_gallery(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", "cub200-triplet-sec")]
    np.savez(runs[1] / "test_embeddings.npz", embeddings=np.ones((4, 2)), labels=np.array([0, 0, 1, 1]), scale=1.0)
    with pytest.raises(BadArgument):
        gallery.gallery(runs, tmp_path / "g", images=np.zeros((24, 4, 4)))


def test_strongest_channels_match_a_loop():
    maps = np.random.default_rng(0).normal(size=(3, 9, 4, 5))
    found = feature_maps.strongest(maps, 6)
    for image in range(3):
        means = [sum(float(v) for v in maps[image, c].flat) / 20 for c in range(9)]
        assert list(found[image]) == sorted(range(9), key=lambda c: -means[c])[:6]


def test_feature_maps_are_drawn_or_refused(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", "cub200-triplet-sec")]
    maps = [np.random.default_rng(seed).random((1, 8, 4, 4), dtype=np.float32) for seed in (0, 1)]
    images = np.zeros((2, 1, 16, 20, 3), np.uint8)
    text = feature_maps.feature_maps(runs, tmp_path / "f", maps=maps, images=images)[1].read_text()
    for its in maps:
        assert f"channel {feature_maps.strongest(its)[0, 0]}" in text
    assert text.count(">channel ") == 12 and "6 channels of the last layer" in text
    with pytest.raises(BadArgument):
        feature_maps.feature_maps(runs, tmp_path / "f")
    with pytest.raises(BadArgument):
        feature_maps.feature_maps(runs, tmp_path / "f", maps=maps[:1], images=images)
    with pytest.raises(BadArgument):
        feature_maps.feature_maps(runs, tmp_path / "f", maps=maps, images=images, count=9)


def test_images_without_labels_are_neither_right_nor_wrong(make_run, tmp_path):
    run = make_run("flat", "simclr-photos")
    arrays = dict(np.load(run / "test_embeddings.npz"))
    np.savez(run / "test_embeddings.npz", **(arrays | {"labels": np.zeros(24, int), "classes": np.array(["photos"])}))
    text = gallery.gallery([run], tmp_path / "g", images=np.zeros((24, 4, 4)))[1].read_text()
    assert "they have no labels" in text and "✓" not in text and "✗" not in text
    assert [f">image {n}<" in text for n in (0, 5, 9, 14, 18, 23)] == [True] * 6  # spread over all


def test_a_file_name_that_is_not_utf8_is_read(make_run, tmp_path):
    name = b"caf\xe9.png".decode(errors="surrogateescape")
    Image.fromarray(np.zeros((6, 8, 3), np.uint8)).save(tmp_path / name, "PNG")
    run = make_run(classes=["caf\udce9", *"abcde"], data_root=tmp_path)
    (run / "test_paths.txt").write_bytes(b"\n".join([bytes(tmp_path) + b"/caf\xe9.png"] * 24))
    text = gallery.gallery([run], tmp_path / "g", queries=[0])[1].read_text()
    assert "caf?" in text


def overlapping(draw, monkeypatch):
    """Draw, and return the pairs of texts that lie over each other in the figure."""
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    drawn, save = [], Figure.savefig

    def kept(self, *args, **options):
        drawn.append(self)
        save(self, *args, **options)

    monkeypatch.setattr(Figure, "savefig", kept)
    draw()
    figure = drawn[0]
    figure.draw_without_rendering()  # as it was shown: saving as SVG leaves places in points
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
    return [(one, two) for i, (one, box) in enumerate(boxes) for two, other in boxes[:i] if box.overlaps(other)]


def test_long_names_of_runs_overlap_nothing(make_run, tmp_path, monkeypatch):
    """Runs that differ in much have long names; a flatter picture under one stands between others."""
    runs = [
        make_run("none", recipe="cub200-ms", optimizer_lr=6.25e-6, optimizer_weight_decay=0.0005),
        make_run("sec", recipe="cub200-ms-sec", optimizer_lr=2.5e-5),
    ]
    rng = np.random.default_rng(0)
    sets = [embedded(run) for run in read_folders(runs)]
    query = retrievals.evenly(sets[0], 6)[:1]
    named = {int(retrievals.nearest(its, query, 3).indices[0, 1]) for its in sets}
    shapes = [(30, 40) if number in named else (36, 40) for number in range(len(sets[0].labels))]
    pictures = [np.full((*shape, 3), 128, np.uint8) for shape in shapes]
    assert not overlapping(lambda: gallery.gallery(runs, tmp_path / "g", images=pictures), monkeypatch)
    maps = [rng.random((2, 8, 4, 4)) for _ in runs]
    seen = [[np.zeros((20, 20, 3), np.uint8)] * 2 for _ in runs]
    assert not overlapping(lambda: feature_maps.feature_maps(runs, tmp_path / "f", maps, seen), monkeypatch)

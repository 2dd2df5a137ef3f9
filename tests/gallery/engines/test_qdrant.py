"""Qdrant by its client's in-memory mode; never by its mode on disk, which unpickles."""

import numpy as np
import pytest

from blobs import blobs, made
from commands import has, isosphere, refusal
from isosphere import gallery, load_gallery
from isosphere.errors import BadArgument
from isosphere.gallery.engines import add_engine, qdrant

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore:Payload indexes have no effect")]
ADDRESS = {"url": "http://localhost:6333", "collection": "photos"}


@pytest.fixture
def client(monkeypatch):
    """One client in memory, in place of each that would connect."""
    from qdrant_client import QdrantClient

    found = QdrantClient(":memory:")
    monkeypatch.setattr(qdrant, "connected", lambda url: found)
    return found


def test_a_collection_has_what_the_gallery_has_after_each_change(client, tmp_path):
    rows, labels = blobs(12, 10, 0.2)
    made(tmp_path / "g", rows[:100], labels[:100])
    measured = add_engine(tmp_path / "g", "qdrant", dict(ADDRESS))
    assert measured == (1.0, 10, 100)  # its mode in memory is exact
    gallery.add(tmp_path / "g", rows[100:], [f"{row}.jpg" for row in range(100, 120)], labels[100:])
    left = gallery.remove(tmp_path / "g", [f"{row}.jpg" for row in range(0, 30, 3)])
    points, _ = client.scroll("photos", limit=1000, with_payload=True, with_vectors=True)
    payloads = {point.id: (point.payload["path"], point.payload["label"]) for point in points}
    assert payloads == dict(zip(left.ids.tolist(), zip(left.paths, left.labels, strict=True), strict=True))
    vectors = {point.id: point.vector for point in points}
    np.testing.assert_allclose([vectors[row] for row in left.ids.tolist()], left.vectors[:], atol=1e-3)
    fast = load_gallery(tmp_path / "g", "cpu", engine="qdrant")
    for k, where in ((7, None), (5, "class3"), (25, ["class1", "class4"]), (3, np.arange(110) > 50)):
        found, wanted = fast.search(rows[:30], k, where), left.search(rows[:30], k, where)
        np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-6)
        assert (found.indices == wanted.indices).mean() > 0.99


def test_labels_that_change_are_changed_there(client, trained, photos, tmp_path, monkeypatch):
    lines = ["path,label", *(f"{path},{path.parent.name}" for path in sorted(photos.rglob("*.png"))[:12])]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    words = ("index", trained, "list.csv", "--out", "gallery")
    said = isosphere(*words, "--engine", "qdrant", "--url", ADDRESS["url"], folder=tmp_path).stdout
    assert "qdrant: recall@10 1.000" in said
    (tmp_path / "list.csv").write_text("\n".join([*lines[:-1], lines[-1].replace(",class2", ",other")]))
    monkeypatch.chdir(tmp_path)
    isosphere(*words, folder=tmp_path)
    points, _ = client.scroll("gallery", limit=100, with_payload=True)
    assert sorted(point.payload["label"] for point in points) == sorted(load_gallery("gallery").labels)
    found = isosphere("search", "gallery", lines[3].split(",")[0], "--engine", "qdrant", "--k", 3, folder=tmp_path)
    exact = isosphere("search", "gallery", lines[3].split(",")[0], "--k", 3, folder=tmp_path)
    assert found.stdout == exact.stdout


@pytest.mark.parametrize("url", [None, "/tmp/store", ":memory:", "file:///tmp/store", "ftp://host"])
def test_only_an_address_of_a_server_is_taken(url, tmp_path):
    words = ("index", "run", "photos", "--out", "gallery", "--engine", "qdrant")
    assert has(refusal(*words, *(() if url is None else ("--url", url)), folder=tmp_path), BadArgument, name="url")
    assert not list(tmp_path.iterdir())

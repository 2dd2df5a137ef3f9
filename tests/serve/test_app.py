"""The HTTP interface: it finds what the gallery finds, says what it refuses, and is as its description says."""

import io
import json
import threading

import numpy as np
import pytest
import torch
from PIL import Image

from asking import ask
from isosphere import load_gallery, load_run
from isosphere.gallery import create
from isosphere.serve import Limits
from test_core import ROOT
from test_readme import blocks


@pytest.fixture(scope="module")
def gallery(gallery_folder):
    return load_gallery(gallery_folder, "cpu")


def numbers(answer):
    assert answer.status == 200, answer.body
    return [item["id"] for item in answer.json["results"]]


def test_it_finds_what_the_gallery_finds(server, gallery, photos):
    files = sorted(photos.rglob("*.png"))[::7]
    found = gallery.search(files, 5)
    for query, file in enumerate(files):
        answer = server.ask("/search?k=5", file.read_bytes())
        rows = found.indices[query].tolist()
        assert numbers(answer) == gallery.ids[rows].tolist()
        items = answer.json["results"]
        np.testing.assert_allclose([item["score"] for item in items], found.scores[query], atol=1e-5)
        assert [item["label"] for item in items] == found.labels[query]
        assert [str(photos / item["path"]) for item in items] == [str(photos / gallery.names[row]) for row in rows]
        pictures = [server.ask(item["thumbnail"]) for item in items]
        assert [one.body for one in pictures] == [gallery.thumbnail(row) for row in rows]
        assert all(one.headers["Content-Type"] == "image/webp" for one in pictures)


def test_it_embeds_as_the_run_does(server, trained, photos):
    file = photos / "class3" / "1.png"
    run, answer = load_run(trained, "cpu"), server.ask("/embed", file.read_bytes(), Content_Type="image/png").json
    np.testing.assert_allclose(answer["embedding"], run.encode([file])[0], atol=1e-5)
    assert answer["norm"] == pytest.approx(float(run.embed([file]).norm()), rel=1e-4)
    found = server.ask("/search?k=9", {"embedding": answer["embedding"]})
    assert numbers(found) == numbers(server.ask("/search?k=9", file.read_bytes()))
    parts = found.headers["Server-Timing"].split(", ")
    assert [part.split(";")[0] for part in parts] == ["queue", "model", "search", "batch"]
    alone = server.ask("/search?k=9", file.read_bytes()).headers["Server-Timing"]
    assert alone.startswith("decode;dur=") and alone.endswith('batch;desc="1"')


def test_neighbors_of_an_image_are_without_itself_and_of_the_labels_asked_for(server, gallery):
    whole = numbers(server.ask("/neighbors/7?k=49"))
    assert sorted(whole) == sorted(set(gallery.ids.tolist()) - {7}) == sorted(numbers(server.ask("/neighbors/7?k=50")))
    answer = server.ask("/neighbors/7?k=50&label=class1&label=class4")
    pairs = zip(gallery.ids.tolist(), gallery.labels, strict=True)
    its = {number for number, label in pairs if label in ("class1", "class4")}
    assert set(numbers(answer)) == its - {7} and answer.json["query"]["id"] == 7
    assert numbers(answer) == [number for number in whole if number in its]
    assert len(numbers(server.ask("/images?k=12"))) == 12 and set(numbers(server.ask("/images?label=class4"))) <= its


def test_requests_at_once_share_the_model_and_get_their_own(server, photos):
    files = sorted(photos.rglob("*.png"))
    alone = [numbers(server.ask("/search?k=3", file.read_bytes())) for file in files]
    found: dict[int, list[int]] = {}

    def work(start):
        connection = server.connect()
        for place in range(start, len(files), 5):
            found[place] = numbers(ask(connection, "/search?k=3", files[place].read_bytes()))
        connection.close()

    threads = [threading.Thread(target=work, args=(start,)) for start in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[place] for place in range(len(files))] == alone


def png(*size):
    file = io.BytesIO()
    Image.new("RGB", size).save(file, "png")
    return file.getvalue()


VECTOR = [0.1] * 16
REFUSED = {
    "no address": (404, "/nothing", None, {}),
    "wrong method": (405, "/search", None, {}),
    "no such image": (404, "/neighbors/50", None, {}),
    "a number too large": (404, f"/neighbors/{10**30}", None, {}),
    "a negative number": (404, "/thumbnails/-1", None, {}),
    "no such label": (404, "/neighbors/1?label=nobody", None, {}),
    "k too large": (422, "/neighbors/1?k=51", None, {}),
    "k no number": (422, "/neighbors/1?k=1e1", None, {}),
    "k of other digits": (422, "/neighbors/1?k=%D9%A3", None, {}),
    "nothing": (422, "/search", b"", {}),
    "a form": (415, "/search", b"--a", {"Content_Type": "multipart/form-data; boundary=a"}),
    "no image": (415, "/search", b"hello", {}),
    "half an image": (415, "/search", png(30, 20)[:45], {}),
    "too many bytes": (413, "/search", b"0" * 300_001, {}),
    "too many pixels": (413, "/search", png(2001, 1000), {}),
    "too thin": (413, "/search", png(1, 60_000), {}),
    "too long a vector": (422, "/search", {"embedding": [*VECTOR, 1]}, {}),
    "words in a vector": (422, "/search", {"embedding": [*VECTOR[1:], "1"]}, {}),
    "no number in a vector": (422, "/search", {"embedding": [*VECTOR[1:], float("nan")]}, {}),
    "a number too large for a vector": (422, "/search", {"embedding": [*VECTOR[1:], 1e300]}, {}),
    "a vector of zeros": (422, "/search", {"embedding": [0] * 16}, {}),
    "no vector": (422, "/search", [1], {}),
    "deep JSON": (422, "/search", b"[" * 90_000, {"Content_Type": "application/json"}),
    "much JSON": (413, "/search", b" " * 100_001, {"Content_Type": "application/json"}),
    "a vector to embed": (422, "/embed", {"embedding": VECTOR}, {}),
    "another host": (403, "/health", None, {"Host": "evil.example"}),
    "another site": (403, "/search", png(3, 3), {"Origin": "https://evil.example"}),
    "a page from disk": (403, "/search", png(3, 3), {"Origin": "null"}),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_a_line_of_json(server, name):
    status, path, body, headers = REFUSED[name]
    answer = server.ask(path, body, **headers)
    assert answer.status == status, answer.body
    assert status in (404, 405) or list(answer.json) == ["error"]
    assert "\n" not in answer.body.decode() and server.ask("/health").json["waiting"] == 0


def test_its_own_page_and_host_are_welcome(server):
    assert server.ask("/search", png(9, 9), Origin=server.url).status == 200
    assert server.ask("/health", Host="LOCALHOST:1").status == server.ask("/health", Host="[::1]:80").status == 200


def test_every_answer_guards_itself(server):
    for path in ("/", "/page.js", "/health", "/nothing", "/thumbnails/3?of=1", "/neighbors/99"):
        headers = server.ask(path).headers
        policy, others = headers["Content-Security-Policy"], headers["Cross-Origin-Resource-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and others == "same-origin"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] and headers["Server"] is None and "Access-Control-Allow-Origin" not in headers


def test_the_description_says_what_is_answered(server, photos):
    """Every address is described, and each answer has just the fields that the description says."""
    said = server.ask("/openapi.json").json
    image = (photos / "class1" / "1.png").read_bytes()
    asked = {
        "/health": None, "/gallery": None, "/labels": None, "/images": None, "/embed": image, "/search": image,
        "/neighbors/{id}": None, "/thumbnails/{id}": None,
    }  # fmt: skip
    assert said["openapi"].startswith("3.") and set(said["paths"]) == set(asked)
    for path, body in asked.items():
        (method, about), = said["paths"][path].items()
        answer = server.ask(path.replace("{id}", "3"), body)
        assert method == ("get" if body is None else "post") and answer.status == 200
        content = about["responses"]["200"]["content"]
        if "application/json" in content:
            fits(answer.json, content["application/json"]["schema"], said)


def fits(value, schema, said):
    """A value is as a schema says."""
    if "$ref" in schema:
        return fits(value, said["components"]["schemas"][schema["$ref"].rpartition("/")[2]], said)
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    kinds |= {"null": type(None)}
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert any(isinstance(value, kinds[name]) for name in names), (value, schema)
    if isinstance(value, dict):
        assert set(schema["required"]) <= set(value) <= set(schema["properties"]), (value, schema)
        for name, its in value.items():
            fits(its, schema["properties"][name], said)
    if isinstance(value, list):
        for its in value[:3]:
            fits(its, schema["items"], said)


def test_labels_are_proposed_by_what_they_contain(server):
    found = server.ask("/labels?like=ASS3").json["labels"]
    assert found == [{"label": "class3", "images": 5}] and len(server.ask("/labels").json["labels"]) == 10


def test_a_full_queue_and_full_memory_say_come_again(gallery_folder, photos, serving, monkeypatch):
    image, begun, release = (photos / "class1" / "1.png").read_bytes(), threading.Event(), threading.Event()
    from isosphere.serve.worker import Worker

    with serving(gallery_folder, Limits(queue=2, held=2 * len(image), batch=1)) as server:
        work = Worker.work

        def held(worker, jobs):
            begun.set()
            assert release.wait(20)
            work(worker, jobs)

        monkeypatch.setattr(Worker, "work", held)
        found = []
        first = threading.Thread(target=lambda: found.append(server.ask("/search", image)))
        second = threading.Thread(target=lambda: found.append(server.ask("/neighbors/3")))
        first.start()
        assert begun.wait(20)
        second.start()
        while server.ask("/health").json["waiting"] < 2:
            pass
        third, fourth = server.ask("/neighbors/4"), server.ask("/search", image + b"0" * len(image))
        release.set()
        first.join()
        second.join()
    assert third.status == fourth.status == 503 and third.headers["Retry-After"] == "1"
    assert "upload" in fourth.json["error"] and [one.status for one in found] == [200, 200]


def test_a_failure_is_answered_and_the_next_request_works(gallery_folder, serving, monkeypatch, capfd):
    from isosphere.serve.worker import Worker

    with serving(gallery_folder, Limits()) as server:
        with monkeypatch.context() as patch:
            patch.setattr(Worker, "_search", lambda *_: 1 / 0)
            answer = server.ask("/neighbors/3")
        assert answer.status == 500 and "Zero" not in answer.body.decode()
        assert numbers(server.ask("/neighbors/3")) and "ZeroDivisionError" in capfd.readouterr().err


def test_a_gallery_of_given_vectors_is_searched_by_vectors_and_rows(tmp_path, serving):
    vectors = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    create(tmp_path / "given", vectors, [f"a/{n}\udc80.jpg" for n in range(9)])
    with serving(tmp_path / "given", Limits()) as server:
        about = server.ask("/gallery").json
        assert (about["takes_images"], about["labels"], about["images"]) == (False, 0, 9)
        answer = server.ask("/search?k=9", {"embedding": vectors[4].tolist()})
        cosines = torch.cosine_similarity(vectors, vectors[4:5])
        assert numbers(answer) == cosines.argsort(descending=True).tolist()
        assert answer.json["results"][0]["path"] == "a/4\udc80.jpg" and answer.json["results"][0]["thumbnail"] is None
        assert server.ask("/search", png(3, 3)).status == 409 and server.ask("/thumbnails/3").status == 404
        assert numbers(server.ask("/neighbors/4?k=8")) == numbers(answer)[1:]
        assert json.loads(server.ask("/labels").body) == {"labels": []}


def test_the_python_of_the_page_runs(server, photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.open(photos / "class3" / "2.png").save("a.jpg", quality=100)
    (code,) = blocks(ROOT / "docs" / "guides" / "serve.md", "python")
    exec(code.replace("http://127.0.0.1:8000", server.url), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and "class3/2.png" in {line.split()[-1] for line in lines}

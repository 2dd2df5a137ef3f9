"""Galleries of vectors that are given; rows added and removed."""

import numpy as np
import pytest
import torch

from isosphere import gallery, load_gallery
from isosphere.errors import BadArgument, FolderExists, NoModel, NotFinite, UnknownName


def test_given_vectors_are_a_gallery(tmp_path):
    generator = torch.Generator().manual_seed(0)
    vectors, paths = 3 * torch.randn(20, 12, generator=generator), [f"{number}.jpg" for number in range(20)]
    labels = [f"class{number // 5}" for number in range(20)]
    gallery.create(tmp_path / "given", vectors[:10], paths[:10], labels[:10])
    assert gallery.add(tmp_path / "given", vectors[10:].numpy(), paths[10:], labels[10:]).paths == paths
    found = load_gallery(tmp_path / "given").search(vectors[3], 20)
    cosines = torch.nn.functional.cosine_similarity(vectors[3:4], vectors)
    assert found.indices[0].tolist() == cosines.argsort(descending=True).tolist()
    np.testing.assert_allclose(found.scores[0], cosines.sort(descending=True).values, atol=1e-3)
    left = gallery.remove(tmp_path / "given", paths[:4])
    assert left.paths == paths[4:] and left.labels == labels[4:] and left.ids.tolist() == [*range(4, 20)]
    assert gallery.add(tmp_path / "given", vectors[:1], ["again.jpg"]).ids[-1] == 20
    assert left.search(vectors[5:7], 30, where=["class2", "class1"]).indices.shape == (2, 10)
    assert set(left.search(vectors[5:7], 30, where="class3").labels[0]) == {"class3"}
    mask = np.arange(16) < 2
    assert sorted(left.search(vectors[5], 5, mask).paths[0]) == paths[4:6]
    for where, kind in (("class9", UnknownName), ([], BadArgument), (np.ones(3, bool), BadArgument)):
        with pytest.raises(kind):
            left.search(vectors[5], 5, where)
    for images, kind in (("photo.jpg", NoModel), (vectors[:, :5], BadArgument), (vectors * np.nan, NotFinite)):
        with pytest.raises(kind):
            left.search(images)


def test_what_cannot_be_given_is_refused(tmp_path):
    vectors, paths = torch.eye(4), ["a", "b", "c", "d"]
    gallery.create(tmp_path / "given", vectors, paths)
    with pytest.raises(FolderExists):
        gallery.create(tmp_path / "given", vectors, paths)
    for wrong in (vectors[:, :3], vectors.long(), vectors[0]):
        with pytest.raises(BadArgument):
            gallery.add(tmp_path / "given", wrong, paths)
    for names, labels in ((paths[1:], None), (paths, paths[1:]), (paths, [1, 2, 3, 4])):
        with pytest.raises(BadArgument):
            gallery.add(tmp_path / "given", vectors, names, labels)
    with pytest.raises(UnknownName):
        gallery.remove(tmp_path / "given", ["e"])
    assert len(load_gallery(tmp_path / "given")) == 4 and not load_gallery(tmp_path / "given").labeled

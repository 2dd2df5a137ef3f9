import unicodedata

import pytest
import torch
import torch.nn.functional as F

import isosphere.data.rendered as data_rendered
from isosphere.data.rendered import ALIKE, FACES, characters_and_glyphs, rendered
from isosphere.data.split import split_classes
from isosphere.errors import BadArgument
from raised import raised


@pytest.fixture(scope="module")
def many():
    """All that a run may ask for: the issue's thousand classes."""
    return characters_and_glyphs(1000, seed=0)


def test_a_set_is_complete_and_named():
    images = rendered(classes=12, per_class=5, seed=0)
    assert len(images) == 60 and len(images.classes) == 12
    assert images.pixels.shape == (60, 1, 32, 32) and images.pixels.dtype == torch.uint8
    assert images.labels.tolist() == [c for c in range(12) for _ in range(5)]
    for name in images.classes:
        code, words = name.split(" ", 1)
        assert unicodedata.name(chr(int(code[2:], 16))) == words
    assert rendered(4, 2, seed=0, size=48).pixels.shape == (8, 1, 48, 48)


def test_a_set_is_a_function_of_its_seed_and_grows_at_its_ends():
    small, again, large = rendered(6, 4, seed=1), rendered(6, 4, seed=1), rendered(9, 7, seed=1)
    assert small.classes == again.classes and torch.equal(small.pixels, again.pixels)
    assert large.classes[:6] == small.classes
    assert torch.equal(large.pixels.view(9, 7, -1)[:6, :4], small.pixels.view(6, 4, -1))
    other = rendered(6, 4, seed=2)
    assert other.classes != small.classes and not torch.equal(other.pixels, small.pixels)
    assert len(small.pixels.flatten(1).unique(dim=0)) == 24  # no instance twice


def test_a_thousand_classes_of_distinct_shapes(many):
    characters, glyphs = many
    assert len(set(characters)) == len(characters) == 1000 and glyphs.shape[:2] == (1000, len(FACES))
    for face in range(len(FACES)):
        shapes = F.normalize(F.avg_pool2d(glyphs[:, face, None].float(), 4).flatten(1), dim=1)
        cosines = shapes @ shapes.T
        assert cosines.fill_diagonal_(0).max() < ALIKE
    assert (glyphs.flatten(2).any(2).sum(1) >= 4).all()  # every character stands in at least four faces


def test_twins_are_kept_once(many):
    characters = set(many[0])
    for twins in ("AΑАᎪ", "OoΟοОоՕօ", "HΗН", "cсϲC"):
        assert len(characters & set(twins)) <= 1, twins


def test_no_glyph_is_notdef(many):
    from matplotlib import get_data_path
    from PIL import ImageFont

    characters, glyphs = many
    for face, name in enumerate(FACES[::4]):
        font = ImageFont.truetype(f"{get_data_path()}/fonts/ttf/{name}", 40)
        box = bytes(font.getmask(chr(0x10FFFF)))
        present = glyphs[:, 4 * face].flatten(1).any(1).tolist()
        assert not any(bytes(font.getmask(c)) == box for c, has in zip(characters, present, strict=True) if has)


def test_both_halves_mix_scripts():
    for part in split_classes(rendered(120, 1, seed=0)):
        scripts = {name.split()[1] for name in part.classes}
        assert {"LATIN", "GREEK", "CYRILLIC", "CANADIAN"} <= scripts


def test_asking_for_too_many_classes_says_how_many_there_are(monkeypatch):
    fonts, mapped = data_rendered._fonts()
    monkeypatch.setattr(data_rendered, "_fonts", lambda: (fonts, [codes & {65, 66, 0x391} for codes in mapped]))
    with raised(BadArgument, name="classes", value=3) as caught:
        rendered(3)
    assert "at most 2" in caught.value.expected
    assert {name[0:6] for name in rendered(2, 1).classes} in ({"U+0041", "U+0042"}, {"U+0391", "U+0042"})


def test_raw_pixels_are_a_poor_embedding():
    images = rendered(100, 10, seed=0)
    vectors = F.normalize(images.pixels.float().flatten(1), dim=1)
    nearest = (vectors @ vectors.T).fill_diagonal_(-1).argmax(1)
    recall = (images.labels[nearest] == images.labels).double().mean()
    assert 0.01 < recall < 0.35

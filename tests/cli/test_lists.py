"""`isosphere recipes` and `isosphere datasets`: what is there."""

from commands import has, isosphere, refusal
from isosphere.errors import UnknownRecipe
from isosphere.paper import ALL


def test_datasets_says_what_is_installed_and_where_to_get_the_rest(tmp_path):
    (tmp_path / "data" / "CUB_200_2011" / "images" / "001.Albatross").mkdir(parents=True)
    (tmp_path / "data" / "CUB_200_2011" / "images.txt").write_text("1 001.Albatross/a.jpg\n")
    (tmp_path / "data" / "CUB_200_2011" / "image_class_labels.txt").write_text("1 1\n")
    shown = " ".join(isosphere("datasets", folder=tmp_path).stdout.split())
    assert "CUB-200-2011" in shown and "cars196" in shown and "not installed" in shown and "http" in shown
    joined = isosphere("datasets", folder=tmp_path).stdout
    assert "--get sop" in joined and "--get cars196" not in joined and "--get inshop" not in joined
    assert "CIFAR-100: isosphere train simclr-cifar10 --data.download true" in shown
    (tmp_path / "data").rename(tmp_path / "my[data]")
    assert "my[data]/CUB_200_2011" in isosphere("datasets", "my[data]", folder=tmp_path).stdout.replace("\n", "")


def names(*words: str, folder) -> list[str]:
    return [line.split()[0] for line in isosphere("recipes", *words, folder=folder).stdout.splitlines() if line.split()]


def test_recipes_for_your_own_images_come_first_and_the_papers_on_request(tmp_path):
    own = [name for name in names(folder=tmp_path) if name in ALL]
    assert own[:2] == ["photos", "photos-sec"] and len(own) == 10
    assert {"faces-arcface-sec", "simclr-photos-sec", "rendered"} < set(own)
    assert {name for name in names("--all", folder=tmp_path) if name in ALL} == set(ALL)


def test_recipes_by_beginning_and_by_field(tmp_path):
    found = names("cub200-m", folder=tmp_path)
    assert "cub200-ms-sec-relative" in found and all(name.startswith("cub200-m") for name in found if name in ALL)
    assert "--constraint.eta" in names("rendered-sec", folder=tmp_path)
    assert has(refusal("recipes", "renderd", folder=tmp_path), UnknownRecipe, name="renderd")

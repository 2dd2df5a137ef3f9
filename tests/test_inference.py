"""A trained run in Python: it embeds files and images in memory as the command line embeds files."""

import os
import threading

import numpy as np
import pytest
import torch
from PIL import Image

from commands import isosphere
from isosphere import load_run
from isosphere.data import images
from isosphere.errors import BadArgument


def test_a_run_embeds_files_in_python_and_features_on_the_command_line(trained, photos):
    isosphere("embed", trained, photos / "class3", "--out", "f.npy", "--features", folder=trained.parent)
    isosphere("embed", trained, photos / "class3", "--out", "g.npy", folder=trained.parent)
    run, files = load_run(trained, "cpu"), sorted((photos / "class3").iterdir())
    for name, features in (("f.npy", True), ("g.npy", False)):
        found = run.embed(files, features)
        np.testing.assert_allclose(found.numpy(), np.load(trained.parent / name), rtol=1e-4, atol=1e-5)
    assert np.load(trained.parent / "f.npy").shape[1] == run.model.backbone.num_features != 16
    assert run.embed(str(files[0])).shape == (1, 16)
    with pytest.raises(BadArgument) as error:
        run.embed([])
    assert error.value.name == "images"


@pytest.mark.parametrize("features", [False, True])
def test_a_run_embeds_images_in_memory_as_it_does_their_files(features, trained, photos, tmp_path):
    run, files = load_run(trained, "cpu"), sorted((photos / "class3").iterdir())
    wanted = run.embed(files, features)
    opened = [Image.open(file) for file in files]
    pixels = np.stack([np.asarray(image) for image in opened])  # (5, 24, 28, 3)
    mirrored = np.ascontiguousarray(pixels[..., ::-1, :])[..., ::-1, :]  # a view that torch cannot take as it is
    for given in (opened, pixels, mirrored, list(pixels), torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())):
        torch.testing.assert_close(run.embed(given, features), wanted)
    for one in (opened[0], pixels[0], torch.from_numpy(pixels[0]).permute(2, 0, 1)):
        torch.testing.assert_close(run.embed(one, features), wanted[:1])
    # PIL's are seen as their files: of any size, upright, without alpha.
    turned = Image.Exif()
    turned[0x0112] = 6
    opened[1].resize((40, 22)).save(tmp_path / "turned.png", exif=turned)
    opened[2].convert("RGBA").resize((17, 30)).save(tmp_path / "alpha.png")
    odd = [tmp_path / "turned.png", files[3], tmp_path / "alpha.png"]
    torch.testing.assert_close(run.embed([Image.open(file) for file in odd], features), run.embed(odd, features))


def test_a_run_decodes_files_in_threads_a_batch_at_a_time(trained, photos, monkeypatch):
    """Not in processes, which some platforms start by running the caller's script again."""
    run, files, decoders = load_run(trained, "cpu"), sorted((photos / "class3").iterdir()), set()

    def decode(file: str) -> torch.Tensor:
        decoders.add((os.getpid(), threading.current_thread()))
        return images.decode(file)

    wanted = run.embed(files)
    monkeypatch.setattr(images.ImageSet, "__getitem__", lambda its, index: decode(its.paths[index]))
    torch.testing.assert_close(run.embed(files * 60), wanted.repeat(60, 1))
    assert decoders and (os.getpid(), threading.main_thread()) not in decoders
    assert {process for process, _ in decoders} == {os.getpid()}


def test_what_is_no_image_in_memory_is_refused(trained, photos):
    run, file = load_run(trained, "cpu"), photos / "class3" / "1.png"
    shapes = [np.zeros(shape, np.uint8) for shape in ((2, 1, 8, 8), (8, 8), (2, 8, 8))]
    for pixels in (torch.zeros(2, 3, 8, 8), *shapes):
        with pytest.raises(BadArgument):
            run.embed(pixels)
    for empty in (np.zeros((0, 8, 3), np.uint8), torch.zeros(2, 3, 8, 0, dtype=torch.uint8), Image.new("RGB", (0, 8))):
        with pytest.raises(BadArgument):
            run.embed(empty)
    with pytest.raises(BadArgument):
        run.embed([Image.open(file), str(file)])

"""ONNX Runtime against torch with torchvision's resizing in float, and the example without torch."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional

from commands import isosphere as command
from isosphere import export, load_run
from isosphere.errors import OtherEmbeddings, Unsupported
from isosphere.export import onnx_file
from isosphere.metrics.faces import mirror_averaged
from isosphere.recipes import schema
from isosphere.sphere import directions
from raised import raised
from test_core import ENVIRONMENT, ROOT
from test_examples import EXAMPLES
from test_readme import blocks, commands

pytestmark = pytest.mark.extras

DATA = schema.Folder(size=64, shorter=72)
NETWORKS = {
    "small_cnn": (DATA, schema.Model(dim=16)),
    "resnet18": (DATA, schema.Model("resnet18", dim=16, freeze_bn=True)),
    "resnet50_v1": (DATA, schema.Model("resnet50_v1", dim=16)),
    "efficientnet_b0": (DATA, schema.Model("efficientnet_b0", dim=16, head="fc")),
    "vit_tiny_patch16_224": (DATA, schema.Model("vit_tiny_patch16_224", dim=16, head="mlp")),
    "gem": (DATA, schema.Model("resnet18", dim=16, pooling="gem")),
    "faces": (schema.Faces(fraction=0.7), schema.Model("small_cnn", dim=16, head="dropout_fc_bn")),
}


def in_onnx(path, images):
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    return torch.from_numpy(session.run(["embeddings"], {"images": images.numpy()})[0])


@torch.no_grad()
@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_runtime_gives_what_torch_does(made, tmp_path, name):
    trained, path = made(*NETWORKS[name]), tmp_path / "model.onnx"
    if flips := name == "small_cnn":
        flipping = replace(trained.recipe, evaluation=schema.TaskMetrics(flip=True))
        trained = replace(trained, recipe=flipping)
    check = export.to_onnx(trained, path)
    assert check.error < export.LIMIT and 0.99 < check.cosine <= 1 + 1e-6
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"], "one file"
    for count, height, width in ((1, 50, 70), (5, 201, 130), (2, 72, 72)):
        images = torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8)
        if name == "faces":
            pixels = export.Pipeline(trained).view(images.float())
        else:
            pixels = functional.center_crop(functional.resize(images.float(), [72], antialias=True), [64])
        wanted = mirror_averaged(trained.model, pixels) if flips or name == "faces" else trained.model(pixels)
        torch.testing.assert_close(in_onnx(path, images), directions(wanted), atol=1e-4, rtol=0)


def test_a_run_on_the_command_line(trained, photos, tmp_path):
    import onnx

    done = command("export", trained, "--to", "onnx", "--raw", folder=tmp_path)
    assert done.stdout.splitlines()[0] == "run.onnx" and "to torch" in done.stdout
    about = {one.key: one.value for one in onnx.load(tmp_path / "run.onnx").metadata_props}
    assert about["unit"] == "false" and about["dim"] == "16" and about["backbone"] == "small_cnn"
    files = sorted((photos / "class3").iterdir())
    pixels = torch.from_numpy(np.stack([np.asarray(Image.open(file)) for file in files])).permute(0, 3, 1, 2)
    found, wanted = in_onnx(tmp_path / "run.onnx", pixels.contiguous()), load_run(trained, "cpu").embed(files)
    assert torch.cosine_similarity(found, wanted).min() > 0.999, "which rounds pixel values"
    assert not torch.allclose(found.norm(dim=1), torch.ones(5), atol=0.01)


def test_what_is_wrong_or_too_large_is_not_written(made, tmp_path, monkeypatch):
    trained, path = made(DATA, schema.Model(dim=8)), tmp_path / "model.onnx"
    monkeypatch.setattr(onnx_file, "LARGEST", 10_000)
    with raised(Unsupported, transform="one ONNX file"):
        export.to_onnx(trained, path)
    monkeypatch.undo()
    path.write_text("the old one")
    monkeypatch.setattr(onnx_file, "in_onnx_runtime", lambda file: lambda images: torch.full((len(images), 8), 8**-0.5))
    with raised(OtherEmbeddings, path=path):
        export.to_onnx(trained, path)
    assert path.read_text() == "the old one"


BLOCKED = """
import runpy, sys
sys.modules["torch"], sys.argv = None, sys.argv[1:]
runpy.run_path(sys.argv[0], {}, "__main__")
"""


def test_the_example_needs_no_torch(trained, photos, tmp_path):
    command("export", trained, "--to", "onnx", "--out", "model.onnx", folder=tmp_path)
    words = [EXAMPLES / "onnx_without_torch.py", "model.onnx", photos / "class3" / "0.png", photos]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *map(str, words)], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 10 and lines[0] == f"1.000  {photos / 'class3' / '0.png'}"
    run, files = load_run(trained, "cpu"), [line.split("  ")[1] for line in lines]
    cosines = run.encode(files) @ run.encode([str(photos / "class3" / "0.png")]).T
    np.testing.assert_allclose([float(line.split("  ")[0]) for line in lines], cosines[:, 0], atol=5e-3)


def test_the_page_runs_from_top_to_bottom(trained, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "my_photos-seed0").symlink_to(trained)
    (tmp_path / "other_photos").symlink_to(photos)
    for name in "ab":
        Image.new("RGB", (30, 24)).save(f"{name}.jpg")
    page, units = ROOT / "docs" / "guides" / "export.md", []
    for words in commands(page):
        command(*words, folder=tmp_path)
    for code in blocks(page, "python"):
        names: dict = {}
        exec(code, names)
        units.append(torch.as_tensor(names["unit"]))
    assert [tuple(unit.shape) for unit in units] == [(1, 16), (4, 16), (2, 16)]
    torch.testing.assert_close(units[0], units[2][:1], atol=0.01, rtol=0)
    assert (tmp_path / "e.npy").is_file() and all(unit.norm(dim=1).allclose(torch.ones(1)) for unit in units)

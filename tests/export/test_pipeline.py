"""The graph against torchvision's resizing in float, a program of torch against the pipeline, and what is refused."""

import pytest
import torch
from torch import nn
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from isosphere import export
from isosphere.data.alignment import FaceView
from isosphere.data.fits import GRAY
from isosphere.data.transforms import TestView
from isosphere.errors import Incompatible, OtherEmbeddings, Unsupported
from isosphere.export import graphs
from isosphere.export.pipeline import Pipeline, view_weights
from isosphere.metrics.faces import mirror_averaged
from isosphere.recipes import schema
from isosphere.sphere import directions
from raised import raised

SIZES = ((50, 70), (301, 200), (72, 72), (64, 65), (64, 64), (33, 400), (9, 7), (112, 112), (45, 131))
DATA = schema.Folder(size=32, shorter=37)


def in_float(view: TestView | FaceView, images: torch.Tensor) -> torch.Tensor:
    """What a view does, by torchvision and without rounding pixel values."""
    images = images.float()
    if isinstance(view, TestView) and view.fit == "crop" and isinstance(view.size, int):
        mode = InterpolationMode(view.interpolation)
        return functional.center_crop(functional.resize(images, [view.shorter], mode, antialias=True), [view.size])
    return view(images)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    "view",
    [
        TestView(64, 72), TestView(64, 64), FaceView(), FaceView(1.0, 0.0), FaceView(0.7), TestView((64, 32), 36),
        TestView(64, 72, "crop", "bicubic"), TestView((64, 32), 36, "pad", "bicubic"),
        *(TestView(size, 36, fit) for size in ((64, 32), 36) for fit in ("pad", "squash")),
    ],
    ids=str,
)  # fmt: skip
def test_a_view_as_matrices_is_that_of_torchvision_in_float(view, size):
    cubic = getattr(view, "interpolation", "") == "bicubic"  # of uint8 it is cut to 0..255 after each of two passes
    levels, generator = (96, 160) if cubic else (0, 256), torch.Generator().manual_seed(0)
    images = torch.randint(*levels, (2, 3, *size), dtype=torch.uint8, generator=generator)
    rows, columns = view_weights(view, *size)
    around = torch.tensor(GRAY)[:, None, None] * (1 - rows.sum(1)[:, None] * columns.sum(1))
    found = rows @ images.float() @ columns.T + around
    torch.testing.assert_close(found, in_float(view, images), atol=0.02, rtol=0)  # of 255
    twice = getattr(view, "fit", "crop") != "crop"
    assert (found - view(images)).abs().max() < (2.05 if twice or cubic else 1.05), "uint8 rounds once or twice"


class Mean(nn.Module):
    """A network of one's own: the mean color by a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.linear(images.mean((2, 3)))


class Chosen(Mean):
    """One whose result depends on a value of the pixels, which no graph can follow."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images if images.mean() > 0 else -images)


OWN = schema.OwnModel(path="somewhere:Mean", source="any", given="object")


@pytest.mark.parametrize(
    "data, model, given, unit",
    [
        (DATA, schema.Model(dim=8, freeze_bn=True), None, False),
        (schema.Faces(fraction=0.7), schema.Model(dim=8, head="dropout_fc_bn"), None, True),
        (DATA, OWN, Mean(), True),
        (schema.Folder(size="48x24", shorter=27, fit="pad"), schema.Model(dim=8), None, True),
        (schema.Folder(size="48x24", shorter=27), schema.Model(dim=8), None, False),
    ],
    ids=["frozen", "faces", "own", "padded", "tall"],
)
def test_a_program_of_torch_gives_what_the_model_does(made, tmp_path, data, model, given, unit):
    trained = made(data, model, given)
    check = export.to_program(trained, tmp_path / "model.pt2", unit)
    assert check.error < export.LIMIT and check.cosine > 0.999
    extra = {"isosphere.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra).module()
    assert f'"unit": "{str(unit).lower()}"' in extra["isosphere.json"]
    images = torch.randint(0, 256, (3, 3, 90, 60), dtype=torch.uint8)
    pixels = trained.model.from_floats(in_float(Pipeline(trained).view, images))
    wanted = mirror_averaged(trained.model, pixels) if data.framed else trained.model(pixels)
    torch.testing.assert_close(program(images), directions(wanted) if unit else wanted, atol=1e-4, rtol=1e-4)


def test_what_cannot_be_exported_is_refused(made, tmp_path, monkeypatch):
    out = tmp_path / "model.pt2"
    with raised(Incompatible, fields=("data",)):
        export.to_program(made(schema.OwnData(path="a:b", size=32, shorter=32, transformed=True), OWN, Mean()), out)
    with raised(Unsupported, what="Mean", transform="export to torch.export"):
        export.to_program(made(DATA, OWN, Chosen()), out)
    trained = made(DATA, schema.Model(dim=8))
    with monkeypatch.context() as patch, raised(Unsupported, transform="export as a graph"):
        patch.setattr(TestView, "__call__", lambda its, images, numbers=None: 255 - its.rest(its.stored(images)))
        export.to_program(trained, out)
    monkeypatch.setattr(graphs, "LIMIT", -1.0)
    with raised(OtherEmbeddings, path=out, limit=-1.0):
        export.to_program(trained, out)
    assert not list(tmp_path.iterdir())

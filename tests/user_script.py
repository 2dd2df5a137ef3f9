"""A user's script, as a type checker sees it: tests/test_types.py checks it, and that what is wrong is found.

Nothing here is run. Each `type: ignore` marks an error that the checker must find; an unused one is an error, too.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import isosphere
from isosphere import SEC, ClassBatches, NormMonitor, TripletLoss, errors, functional
from isosphere.data import CachedSet, Images, ImageSet, View
from isosphere.data.alignment import FaceView
from isosphere.data.faces import FlipView
from isosphere.data.recordio import RecordSet
from isosphere.data.transforms import ShiftView, TestView, TrainView
from isosphere.data.two_views import ContrastiveView

if TYPE_CHECKING:
    from typing_extensions import assert_type

labels = torch.arange(12) % 3
network = nn.Linear(8, 8)
optimizer = torch.optim.Adam(network.parameters())
embeddings: Tensor = network(torch.randn(12, 8))

# The loop
criterion, sec = TripletLoss(), SEC(0.1, radius="ema")
batches = ClassBatches(labels.tolist(), batch=6, per_class=2, seed=0)
monitor = NormMonitor(optimizer, file=Path("norms.jsonl"))
head = isosphere.CosineClassifier(8, 3, isosphere.ArcFace())
assert_type(batches.indices(0), Tensor)
assert_type(functional.triplet(embeddings, labels), Tensor)
assert_type(functional.norm_penalty(embeddings, radius=2.0), Tensor)
assert_type(isosphere.gather(embeddings, labels), tuple[Tensor, Tensor])
assert_type(isosphere.__version__, str)

# A loss of one's own
@isosphere.pair_loss
def hinges(cosines: Tensor, positive: Tensor, negative: Tensor, margin: float = 0.5) -> Tensor:
    return torch.where(negative, cosines - margin, 0).relu().sum(1)


assert_type(hinges(embeddings, labels, margin=0.2), Tensor)
hinges(embeddings, labels, margin="much")  # type: ignore[arg-type]

# Metrics
assert_type(isosphere.retrieval_metrics(embeddings, labels), dict[str, float])
assert_type(isosphere.retrieval_metrics([[1.0, 2.0]], ["a"], ks=1), dict[str, float])
assert_type(isosphere.recall_at_k(embeddings, labels), dict[int, float])
assert_type(isosphere.map_at_r(embeddings.numpy(), labels.numpy()), float)
assert_type(isosphere.identification(embeddings, labels, embeddings, counts=12), dict[str, float])
assert_type(isosphere.metrics.verification(embeddings, embeddings, labels)["accuracy"], float)

# Sources of images, and views
files, cached, records = ImageSet.folder("photos"), CachedSet.__new__(CachedSet), RecordSet.pair("faces.rec")
sources: list[Images] = [files, cached, records, files.of_classes([0]), cached.subset([0]), records.subset([0])]
views: list[View] = [TrainView(), TestView(), ShiftView(), ContrastiveView(), FlipView(), FaceView()]
assert_type(files.batch(labels, TestView()), Tensor)

# A run of parts of the user's own
fitted = isosphere.fit("photos", model=network, loss=lambda f, y: f.mean(), callbacks=print)
assert_type(fitted.metrics, dict[str, float])
assert_type(fitted.encode("photo.jpg"), Tensor)

# A trained run, and what can go wrong
try:
    run = isosphere.load_run("runs/mine")
except errors.MissingExtra as error:
    assert_type(error.extra, str)
except errors.BadArgument as argument:
    assert_type(argument.expected, str)
model: isosphere.Embedder = isosphere.build_embedder("small_cnn", dim=64)

# What a checker must find
wrong: list[Images] = [FaceView()]  # type: ignore[list-item]
assert isosphere.Sec  # type: ignore[attr-defined]
isosphere.TripletLoss(margn=1.0)  # type: ignore[call-arg]
isosphere.SEC(eta="much")  # type: ignore[arg-type]
isosphere.map_at_r(embeddings, labels).upper()  # type: ignore[attr-defined]

"""From a recipe to the parts of a run: data, model, criterion, constraint, optimiser."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from isosphere.data import retrieval
from isosphere.data.images import ImageSet, readable_images, split_classes
from isosphere.data.packed import PackedSet, pack
from isosphere.data.transforms import ShiftView, TestView, TrainView
from isosphere.losses import contrastive, margins, norms, pairs
from isosphere.models.embedder import Embedder, build_embedder
from isosphere.recipes import losses as options
from isosphere.recipes import schema

Images = ImageSet | PackedSet
RECALLS = {
    "cub200": (1, 2, 4, 8),
    "cars196": (1, 2, 4, 8),
    "sop": (1, 10, 100, 1000),
    "inshop": (1, 10, 20, 30, 40, 50),
}
View = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Views:
    """Training and test images with what is done to their pixels; a view of None leaves them alone."""

    train: Images
    test: Images
    train_view: View | None
    test_view: View | None
    is_query: Tensor | None = None  # which test images ask, where the others are a gallery of their own
    recalls: tuple[int, ...] = (1, 2, 4, 8)
    deviation: str = ""  # how a benchmark's copy differs from the original


def build_data(data: schema.Data, device: torch.device) -> Views:
    """Open the data set and split it by class, so that the test classes are never seen in training."""
    if isinstance(data, schema.Rendered):
        from isosphere.data.rendered import rendered

        images = rendered(data.classes, data.per_class, data.seed, data.size)
        return Views(*split_classes(images), ShiftView(data.shift) if data.shift else None, None)
    views = TrainView(data.size, data.shorter, data.scale, flip=data.flip), build_test_view(data)
    if isinstance(data, schema.Folder):
        images = readable_images(open_images(data.root), data.skip_unreadable)
        return Views(*split_classes(images, data.train_fraction), *views)
    benchmark = retrieval.load(data.name, data.root, data.allow_missing)
    train, test, is_query = benchmark.train, benchmark.test, benchmark.is_query
    if data.pack:
        train = _packed(train, f"{data.name}-train", data, device)
        test = test if data.held_out else _packed(test, f"{data.name}-test", data, device)
    if data.held_out:
        is_query, kept = None, len(train.classes) - data.held_out
        train, test = train.of_classes(range(kept)), train.of_classes(range(kept, len(train.classes)))
    return Views(train, test, *views, is_query, RECALLS[data.name], benchmark.deviation)


def _packed(images: ImageSet, name: str, data: schema.Benchmark, device: torch.device) -> PackedSet:
    store = pack(images, Path(data.pack) / f"{name}-{data.shorter}", data.shorter)
    return store.to(device) if store.fits(device) else store


def build_test_view(data: schema.Data) -> TestView:
    """What an image file goes through before a model that was trained on this data."""
    if isinstance(data, schema.Rendered):
        return TestView(data.size, data.size)
    return TestView(data.size, data.shorter)


def open_images(root: str, flat: bool = False) -> ImageSet:
    """A folder of class folders, or a CSV of path,label[,split]; with `flat` also a folder of images alone."""
    if not root:
        raise ValueError("data.root is empty: name a folder of class folders (./photos if it has that name) or a CSV")
    path = Path(root)
    if not path.exists():
        raise FileNotFoundError(f"no such folder or file: {root}")
    if path.is_file():
        return ImageSet.csv(path)
    if flat and not any(entry.is_dir() for entry in path.iterdir()):
        return ImageSet.flat(path)
    return ImageSet.folder(path)


def build_model(model: schema.Model) -> Embedder:
    """The embedder that the recipe names."""
    return build_embedder(model.backbone, model.head, model.dim, model.weights, model.freeze_bn)


@torch.no_grad()
def check_size(model: Embedder, recipe: schema.Recipe) -> None:
    """Refuse a backbone that cannot take images of the recipe's size, before anything is written."""
    size = recipe.data.size
    try:
        model.eval()(torch.zeros(2, 3, size, size, dtype=torch.uint8))
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{recipe.model.backbone} cannot take images of {size} x {size} pixels: {reason}") from error
    model.train()


def build_criterion(loss: options.Loss, dim: int, classes: int) -> nn.Module:
    """The criterion (embeddings, labels) -> scalar that the recipe names."""
    makers: dict[type, Callable[..., nn.Module]] = {
        options.Triplet: pairs.TripletLoss,
        options.SemiHard: pairs.SemiHardTripletLoss,
        options.NPair: pairs.NPairLoss,
        options.MultiSimilarity: pairs.MultiSimilarityLoss,
        options.Contrastive: pairs.ContrastiveLoss,
        options.SupCon: contrastive.SupConLoss,
        options.NTXent: contrastive.NTXentLoss,
    }
    fields = vars(loss)
    if type(loss) in makers:
        return makers[type(loss)](**fields)
    if isinstance(loss, options.ProxyAnchor):
        return margins.ProxyAnchorLoss(dim, classes, **fields)
    if isinstance(loss, options.Softmax):
        return margins.LinearClassifier(dim, classes)
    margin = {
        options.NormFace: margins.NormFace,
        options.SphereFace: margins.SphereFace,
        options.CosFace: margins.CosFace,
        options.ArcFace: margins.ArcFace,
    }[type(loss)]
    value = (loss.margin,) if hasattr(loss, "margin") else ()
    return margins.CosineClassifier(dim, classes, margin(*value), loss.scale)


def build_constraint(constraint: schema.Constraint) -> norms.SEC | None:
    """SEC in one of its forms, or nothing; the loop gathers embeddings first, so it does not synchronise by itself."""
    if constraint.eta == 0:
        return None
    return norms.SEC(
        constraint.eta, constraint.radius, constraint.rho, constraint.relative, constraint.ramp, sync=False
    )


def build_optimiser(
    optimiser: schema.Optimiser, model: Embedder, criterion: nn.Module, captured: bool = False
) -> torch.optim.Optimizer:
    """Adam or SGD over backbone, head and class weights; for a captured step the learning rates are on the device."""
    groups = model.parameter_groups(optimiser.lr, optimiser.backbone_lr, optimiser.weight_decay)
    weights = list(criterion.parameters())
    if weights:
        groups.append({"params": weights, "lr": optimiser.lr, "weight_decay": optimiser.weight_decay})
    for group in groups:
        group["first_lr"] = group["lr"]
        if captured:
            group["lr"] = torch.tensor(group["lr"], device="cuda")
    fused = next(model.parameters()).is_cuda
    if isinstance(optimiser, schema.SGD):
        return torch.optim.SGD(groups, momentum=optimiser.momentum, fused=fused)
    return torch.optim.Adam(groups, fused=fused, capturable=captured)

"""Which fields of a recipe go together: asked before anything is opened, by whoever trains.

What only an opened data set or a built network can say is asked there: enough classes, enough features.
"""

from collections.abc import Iterator

from isosphere.errors import Incompatible, Option
from isosphere.recipes.constraints import AdaptiveSEC, CutInitialization, DecoupledSEC, ScaleCourse
from isosphere.recipes.data import Data, Faces
from isosphere.recipes.evaluation import OwnEvaluation
from isosphere.recipes.losses import MarginLoss, NTXent, OwnLoss, PairLoss
from isosphere.recipes.schema import SGD, Batches, Classes, Model, OwnModel, Recipe, Shuffled


def check(recipe: Recipe) -> None:
    """Refuse a recipe whose fields do not go together."""
    for error in conflicts(recipe):
        raise error


def check_data(data: Data) -> None:
    """Refuse data whose own fields do not go together, also where nothing is trained."""
    for error in _of_data(data):
        raise error


def conflicts(recipe: Recipe) -> Iterator[Incompatible]:
    """Every group of fields that do not go together, with what would."""
    yield from _of_data(recipe.data)
    yield from _of_labels(recipe)
    yield from _of_batches(recipe)
    if recipe.data.transformed and not isinstance(recipe.model, OwnModel):
        reason = "this backbone normalizes pixels itself, but the data set has float tensors; give PIL or uint8 images"
        yield Incompatible(("data", "model"), reason, (Option("model", "package.module:Network"),))
    if isinstance(recipe.evaluation, OwnEvaluation) and (recipe.data.framed or not recipe.data.labeled):
        remedies = (Option("evaluation", "TaskMetrics"), Option("evaluation", "NormsOnly"))
        yield Incompatible(("evaluation", "data"), "metrics of your own are for retrieval", remedies)
    if recipe.classes != Classes() and not isinstance(recipe.loss, MarginLoss):
        reason = "class weights are sharded and drawn for losses with a margin alone"
        yield Incompatible(("classes", "loss"), reason, (Option("loss", "ArcFace"), Option("loss", "CosFace")))
    if recipe.classes.rate < 1 and not isinstance(recipe.optimizer, SGD):
        reason = "a classes.rate below 1 needs SGD, which leaves classes alone that were not drawn"
        remedies = (Option("optimizer", "SGD"), Option("classes.rate", 1.0))
        yield Incompatible(("classes.rate", "optimizer"), reason, remedies)
    yield from _of_model(recipe)
    if recipe.model.head_start == "pca" and recipe.model.head not in ("bn_fc", "ln_fc", "fc"):
        remedies = (Option("model.head", "bn_fc"), Option("model.head_start", "random"))
        yield Incompatible(("model.head", "model.head_start"), "only bn_fc, ln_fc and fc can start as PCA", remedies)
    acts_on_head = isinstance(recipe.constraint, AdaptiveSEC | CutInitialization | DecoupledSEC | ScaleCourse)
    if recipe.model.head == "none" and acts_on_head:
        reason = f"{type(recipe.constraint).__name__} acts on the last layer of a head of ours"
        remedies = (Option("model.head", "bn_fc"), Option("constraint", "SEC"))
        yield Incompatible(("constraint", "model.head"), reason, remedies)
    if recipe.loop.unit == "epochs" and not isinstance(recipe.batches, Shuffled):
        remedies = (Option("batches", "Shuffled"), Option("loop.unit", "steps"))
        yield Incompatible(("loop.unit", "batches"), "epochs need batches that go through all images", remedies)


def _of_data(data: Data) -> Iterator[Incompatible]:
    """Who is to be identified, and among whom."""
    if data.transformed and (asked := [name for name in ("jitter", "randaugment", "erasing") if _any(data, name)]):
        reason = "the dataset gives float tensors, which stay as its own transforms made them"
        remedies = tuple(Option(f"data.{name}", "0,0,0,0" if name == "jitter" else 0) for name in asked)
        yield Incompatible(("data", *(remedy.field for remedy in remedies)), reason, remedies)
    if isinstance(data, Faces) and bool(data.probes) != bool(data.distractors):
        lacking, given, empty = ("distractors", "probes", "") if data.probes else ("probes", "distractors", ())
        reason = "people are identified by probes among distractors, and one of them is missing"
        remedies = (Option(f"data.{given}", empty), Option(f"data.{lacking}"))
        yield Incompatible(("data.probes", "data.distractors"), reason, remedies)


def _any(data: Data, name: str) -> bool:
    """Whether a field holds anything but zeros."""
    value = getattr(data, name)
    return any(value) if isinstance(value, tuple) else bool(value)


def _of_model(recipe: Recipe) -> Iterator[Incompatible]:
    """Weights come from one place, and something must learn."""
    model, optimizer = recipe.model, recipe.optimizer
    if isinstance(model, Model) and model.pretrained and model.weights is not None:
        remedies = (Option("model.pretrained", False), Option("model.weights", "none"))
        yield Incompatible(("model.pretrained", "model.weights"), "weights come from the hub or from a file", remedies)
    if isinstance(model, Model) and model.freeze_bn and model.weights is None and not model.pretrained:
        remedies = (Option("model.weights"), Option("model.pretrained", True), Option("model.freeze_bn", False))
        reason = "a network that starts from scratch has no statistics to keep"
        yield Incompatible(("model.freeze_bn", "model.weights"), reason, remedies)
    rests = {"optimizer.backbone_lr": optimizer.backbone_lr == 0, "schedule.head_first": recipe.schedule.head_first > 0}
    for field, rest in rests.items():
        if rest and model.head == "none":
            remedies = (Option("model.head", "bn_fc"), Option(field, 0.0 if "first" in field else optimizer.lr))
            reason = f"without a head of ours nothing is left to learn while {field} lets the network rest"
            yield Incompatible(("model.head", field), reason, remedies)


def _of_batches(recipe: Recipe) -> Iterator[Incompatible]:
    """A loss that compares images needs something to compare in each batch."""
    loss, batches = recipe.loss, recipe.batches
    name, field = type(loss).__name__, "batches.views" if isinstance(batches, Shuffled) else "batches.per_class"
    alike = batches.views if isinstance(batches, Shuffled) else batches.per_class
    if isinstance(loss, NTXent) and alike != 2:
        reason = f"NTXent compares an image with one other of its kind, and a batch has {alike}"
        yield Incompatible(("loss", field), reason, (Option(field, 2), Option("loss", "SupCon")))
    if isinstance(batches, Batches) and batches.memory and (isinstance(loss, NTXent) or not isinstance(loss, PairLoss)):
        remedies = (Option("batches.memory", 0), Option("loss", "MultiSimilarity"))
        reason = f"{name} cannot compare with a memory of past batches; pair losses of any labels can"
        yield Incompatible(("loss", "batches.memory"), reason, remedies)
    kind, least = ("image", 1) if isinstance(batches, Shuffled) else ("class", batches.per_class)
    if batches.size == least and isinstance(loss, PairLoss):
        reason = f"{name} has nothing to compare in a batch of one {kind}"
        yield Incompatible(("loss", "batches.size"), reason, (Option("batches.size", 2 * least),))


def _of_labels(recipe: Recipe) -> Iterator[Incompatible]:
    """Without labels the views of an image are alike; with them its class is."""
    loss, batches = recipe.loss, recipe.batches
    if not recipe.data.labeled:  # an image is its own class, of which a batch has several views
        if not isinstance(batches, Shuffled) or batches.views < 2:
            remedies = (Option("batches", "Shuffled"), Option("batches.views", 2))
            yield Incompatible(("data", "batches"), "images without labels need several views of each", remedies)
        if not isinstance(loss, PairLoss | OwnLoss):
            reason = f"{type(loss).__name__} needs classes, which these images have not"
            yield Incompatible(("data", "loss"), reason, (Option("loss", "NTXent"),))
    elif isinstance(loss, NTXent) and isinstance(batches, Shuffled):
        reason = "NTXent needs two images of each class in a batch, which Shuffled does not give"
        remedies = (Option("batches", "Batches"), Option("loss", "SupCon"), Option("data", "Unlabeled"))
        yield Incompatible(("loss", "batches", "data"), reason, remedies)

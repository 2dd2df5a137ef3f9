"""What a run is made of: frozen dataclasses with the reason under each field. No torch, so `--help` is instant.

Durations inside a recipe (milestones, ramps) are fractions of training. So changing `steps` keeps its shape. The unions
below, `Data` in `data.py` and `Loss` in `losses.py` are the registry. The command line and the JSON loader in
`options.py` read them.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from isosphere.errors import BadArgument
from isosphere.recipes.checks import Checked, Count, InOrder, NotNegative, Part, Positive, Range, Share, Whole
from isosphere.recipes.constraints import SEC, BalancedDirections, Baseline, Constraint, L2Reg
from isosphere.recipes.data import Benchmark, Cifar, Data, Faces, Folder, OwnData, Rendered, Unlabeled
from isosphere.recipes.evaluation import Evaluation, NormsOnly, OwnEvaluation, TaskMetrics
from isosphere.recipes.losses import Loss, MultiSimilarity, OwnLoss
from isosphere.recipes.own import Own, own_name
from isosphere.recipes.validation import Validation

Pooling = Literal["avg", "max", "both", "gem", "token"]

# ---------------------------------------------------------------- model, batches, optimizer


@dataclass(frozen=True)
class Model(Checked):
    """A backbone and a head that gives raw embeddings."""

    backbone: str = "small_cnn"
    """A network of ours: small_cnn, resnet50_v1 (Caffe form) or bn_inception. For 32 x 32 pixels resnet18_cifar or
    resnet50_cifar, for faces resnet50_ir, se_resnet50_ir and the like. Or any model of timm or torchvision by name."""
    weights: str | None = None
    """A local .safetensors or .pth file of pretrained weights for the backbone. none starts from scratch."""
    pretrained: bool = False
    """Weights from timm's hub, with their mean, std and interpolation. The backbone is then a name of timm, or
    hf_hub:ORG/NAME, or local-dir:PATH with config.json and model.safetensors."""
    pooling: Pooling | None = None
    """How the last maps become features: average, max, both (their sum), gem (a learned mean between the two), or a
    transformer's class token. none is the backbone's own."""
    head: Literal["bn_fc", "ln_fc", "fc", "mlp", "dropout_fc_bn"] = "bn_fc"
    """bn_fc is batch norm and a linear layer, for retrieval (App. B.1). ln_fc has layer norm in place of batch norm, as
    ProxyNCA++. mlp is SimCLR's, dropout_fc_bn ArcFace's."""
    head_start: Literal["random", "pca"] = "random"
    """First weights of the head. pca takes principal components of the training images' features; for bn_fc,
    ln_fc and fc."""
    dim: Count = 512
    """Length of an embedding."""
    freeze_bn: bool = False
    """Keep the backbone's batch norm as it was pretrained (App. B.1). The head's always trains."""
    preprocessing: Literal["cifar10", "cifar100", "imagenet", "unit"] | None = None
    """Mean and std that normalize the pixels; unit is 0 to 1. none is what the backbone's weights expect."""


@dataclass(frozen=True)
class OwnModel(Own):
    """A network of your own: any module that gives (N, D). It takes float RGB images (N, 3, H, W), normalized."""

    head: Literal["none", "bn_fc", "ln_fc", "fc", "mlp", "dropout_fc_bn"] = "none"
    """A head of ours after the network. none takes the network's own output as raw embeddings."""
    head_start: Literal["random", "pca"] = "random"
    """First weights of the head. pca takes principal components of the training images' features; for bn_fc,
    ln_fc and fc."""
    dim: Count = 512
    """Length of an embedding, if there is a head of ours."""
    width: Whole = 0
    """Length of the network's output; the run finds out."""
    freeze_bn: bool = False
    """Keep the network's batch norm as it is."""
    preprocessing: Literal["cifar10", "cifar100", "imagenet", "unit"] | None = None
    """Mean and std that normalize uint8 pixels; unit is 0 to 1. none is its own, as timm has it, else ImageNet's."""

    weights: ClassVar[None] = None
    kept = ("dim",)

    @property
    def backbone(self) -> str:
        """What it is called."""
        return own_name(self.path)


Networks = Model | OwnModel


@dataclass(frozen=True)
class Batches(Checked):
    """Random classes, and a few images of each."""

    size: Count = 120
    """Images in a batch, over all processes."""
    per_class: Count = 4
    """Images of each class in a batch. The paper has 3, 3, 2, 5 for its four losses."""
    memory: Whole = 0
    """Embeddings of past batches that a pair loss also compares with (XBM); 0 is none. On a GPU the network is still
    compiled with loop.compile, but the step is not captured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % self.per_class:
            raise BadArgument("size", self.size, f"a multiple of per_class, {self.per_class}")


@dataclass(frozen=True)
class Shuffled(Checked):
    """Every image once an epoch, in a new order each time."""

    size: Count = 256
    """Images in a batch, over all processes."""
    views: Count = 1
    """How many times an image is in the batch, each time with other crops and colors. SimCLR has 2."""


Batching = Batches | Shuffled


@dataclass(frozen=True)
class Classes(Checked):
    """How class weights of a softmax head are held and trained. It matters from a hundred thousand classes on."""

    shard: bool = False
    """Each process holds and trains a part of the class weights. The result is that of one process."""
    rate: Share = 1.0
    """Share of the classes that a step compares with. The batch's own are always among them. Below 1 needs SGD."""


@dataclass(frozen=True)
class Adam(Checked):
    """Adam with coupled weight decay, as the paper's retrieval runs."""

    lr: Positive = 1e-3
    """Learning rate of the head."""
    backbone_lr: NotNegative | None = None
    """Learning rate of the backbone; none is the same as lr. 0 leaves it as it is, which is fast."""
    weight_decay: NotNegative = 0.0
    """Weight decay. Batch-norm parameters have none."""
    class_lr: Positive | None = None
    """Learning rate of class weights and proxies, which start from scratch; none is the same as lr."""
    layer_decay: Share = 1.0
    """Rate of each layer of the backbone as a share of the next one's; 0.75 is usual for transformers."""


@dataclass(frozen=True)
class SGD(Checked):
    """SGD with momentum, as the paper's face and SimCLR runs."""

    lr: Positive = 0.1
    """Learning rate of the head."""
    backbone_lr: NotNegative | None = None
    """Learning rate of the backbone; none is the same as lr. 0 leaves it as it is, which is fast."""
    weight_decay: NotNegative = 5e-4
    """Weight decay. Batch-norm parameters have none, unless decay_batch_norm is true."""
    momentum: Part = 0.9
    """As in section 4.1."""
    class_lr: Positive | None = None
    """Learning rate of class weights and proxies, which start from scratch; none is the same as lr."""
    decay_batch_norm: bool = False
    """Weight decay on batch-norm parameters, too, as in the authors' SimCLR code."""
    layer_decay: Share = 1.0
    """Rate of each layer of the backbone as a share of the next one's; 0.75 is usual for transformers."""


@dataclass(frozen=True)
class AdamW(Checked):
    """Adam with decoupled weight decay, as transformers and Proxy-Anchor are trained."""

    lr: Positive = 1e-3
    """Learning rate of the head."""
    backbone_lr: NotNegative | None = None
    """Learning rate of the backbone; none is the same as lr. 0 leaves it as it is, which is fast."""
    weight_decay: NotNegative = 0.01
    """Weight decay. Norms, biases, class tokens and position embeddings have none."""
    class_lr: Positive | None = None
    """Learning rate of class weights and proxies, which start from scratch; none is the same as lr."""
    layer_decay: Share = 1.0
    """Rate of each layer of the backbone as a share of the next one's; 0.75 is usual for transformers."""


Optimizer = Adam | SGD | AdamW


@dataclass(frozen=True)
class Constant(Checked):
    """The learning rate never changes."""

    warmup: Part = 0.0
    """Share of training over which the learning rate first rises from 0. It helps if norms explode at the start."""
    head_first: Part = 0.0
    """Share of training during which the backbone rests: only head and class weights learn. It saves time, too."""


@dataclass(frozen=True)
class MultiStep(Checked):
    """The learning rate is multiplied at milestones (Table 6)."""

    at: Annotated[tuple[Annotated[float, Range(above=0, below=1)], ...], InOrder(strict=True)] = (0.625,)
    """The milestones as fractions of training: 5k of 8k steps is 0.625."""
    factor: Positive = 0.1
    """What the learning rate is multiplied by at each milestone."""
    warmup: Part = 0.0
    """Share of training over which the learning rate first rises from 0. It helps if norms explode at the start."""
    head_first: Part = 0.0
    """Share of training during which the backbone rests: only head and class weights learn. It saves time, too."""


@dataclass(frozen=True)
class Cosine(Checked):
    """The learning rate falls along half a cosine (App. B.3), after the warm-up."""

    final: NotNegative = 0.001
    """The last learning rate as a share of the first."""
    warmup: Part = 0.0
    """Share of training over which the learning rate first rises from 0. It helps if norms explode at the start."""
    head_first: Part = 0.0
    """Share of training during which the backbone rests: only head and class weights learn. It saves time, too."""


Schedule = Constant | MultiStep | Cosine

# ---------------------------------------------------------------- the run


@dataclass(frozen=True)
class Loop(Checked):
    """How long the run trains, how often it measures and saves, and how exactly it computes."""

    unit: Literal["steps", "epochs"] = "steps"
    """What `steps`, `eval_every`, `save_every` and `snapshot_every` count. epochs needs `--batches Shuffled`."""
    steps: Count = 1000
    """Length of training, in steps or epochs (see `unit`)."""
    eval_every: Count = 250
    """Steps between two evaluations. There is one at the start and one at the end, too. They are on the validation
    classes if there are any (`validation.held_out`), else on the test classes."""
    patience: Whole = 0
    """Stop after so many evaluations in a row that are not better on the validation classes; 0 trains to the end."""
    save_every: Whole = 250
    """Steps between two checkpoints. There is one at the end, too. 0 keeps none, unless the run is stopped."""
    log_every: Count = 10
    """Steps between two lines of metrics.jsonl. The first step has one, too."""
    clip: Positive | None = None
    """Clip the gradient to this norm; none does not clip."""
    average: Part = 0.0
    """Measure and use a running average of the weights, of which each step keeps this part; 0.999 is usual. 0 is off.
    In the first steps it keeps less."""
    precision: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """auto is bfloat16 autocast on a GPU that has it, else float32. Norms and losses always have float32 or more.
    float64 is for checks."""
    deterministic: bool = False
    """On a GPU, use slower algorithms, so that a resumed run repeats an unbroken one bit for bit. A CPU always does."""
    compile: bool = False
    """Compile the network. On one GPU also capture the whole step in a CUDA graph."""
    workers: Whole = 2
    """Processes that decode images."""
    snapshot_every: Whole = 0
    """Steps between two snapshots of a fixed subset of the training images; 0 is never. A snapshot has norms, and the
    angles by which embeddings turned since the last one."""
    snapshot_images: Whole = 512
    """Images in that subset; 0 is all."""
    save_embeddings: bool = True
    """Keep the last test embeddings for figures, in half precision."""
    tensorboard: bool = False
    """Write TensorBoard events, too."""


@dataclass(frozen=True)
class Recipe(Checked):
    """A whole run: change any field with `--group.field value`, or a group's kind with `--group Kind`."""

    claim: str = ""
    """What the run is meant to show."""
    data: Data = field(default_factory=Rendered)
    model: Networks = field(default_factory=Model)
    loss: Loss = field(default_factory=MultiSimilarity)
    constraint: Constraint = field(default_factory=Baseline)
    classes: Classes = field(default_factory=Classes)
    batches: Batching = field(default_factory=Batches)
    optimizer: Optimizer = field(default_factory=Adam)
    schedule: Schedule = field(default_factory=Constant)
    loop: Loop = field(default_factory=Loop)
    evaluation: Evaluation = field(default_factory=TaskMetrics)
    validation: Validation = field(default_factory=Validation)
    seed: Whole = 0
    """Seed of first weights, batches and augmentation."""


__all__ = [
    "Adam", "AdamW", "BalancedDirections", "Baseline", "Batches", "Batching", "Benchmark", "Cifar", "Classes",
    "Constant", "Constraint", "Cosine", "Data", "Evaluation", "Faces", "Folder", "L2Reg", "Loop", "Loss", "Model",
    "MultiStep", "Networks", "NormsOnly", "Optimizer", "OwnData", "OwnEvaluation", "OwnLoss", "OwnModel", "Recipe",
    "Rendered", "SEC", "SGD", "Schedule", "Shuffled", "TaskMetrics", "Unlabeled", "Validation",
]  # fmt: skip

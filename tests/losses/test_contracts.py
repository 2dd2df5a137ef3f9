"""What every loss, head and constraint promises: one table of them, one test for each promise.

The oracles are the loops of `references.py`. What only one of them promises is tested in a file of its own.
"""

import copy
import inspect
import pickle
import re
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import isosphere
import own_losses
import ranks
import references
from isosphere.errors import BadArgument, NotFinite, Unsupported
from isosphere.losses import classes, slopes
from isosphere.losses.binary import SphereFace2
from isosphere.losses.centers import SoftTripleLoss, SubCenterArcFace
from isosphere.losses.contrastive import NTXentLoss, SupConLoss
from isosphere.losses.lists import CircleLoss, LiftedStructureLoss, RankedListLoss
from isosphere.losses.log_norms import LogNorms
from isosphere.losses.margins import (
    ArcFace,
    CosFace,
    CosineClassifier,
    LinearClassifier,
    NormFace,
    ProxyAnchorLoss,
    SphereFace,
)
from isosphere.losses.memory import CrossBatchMemory
from isosphere.losses.norm_margins import AdaFace, MagFace
from isosphere.losses.norms import SEC
from isosphere.losses.pairs import (
    ContrastiveLoss,
    MultiSimilarityLoss,
    NPairLoss,
    SemiHardTripletLoss,
    TripletLoss,
)
from isosphere.losses.rankings import RecallSurrogateLoss, SmoothAPLoss
from isosphere.losses.sharded import ShardedClassifier
from isosphere.losses.tuplets import DecoupledContrastiveLoss, TupletMarginLoss
from isosphere.losses.two_sets import InfoNCELoss, SigLIPLoss
from isosphere.train.own import OwnCriterion

pytestmark = pytest.mark.filterwarnings("ignore:all labels of the batch are")
DIM, CLASSES = 6, 5
LABELS = torch.tensor([3, 0, 3, 4, 0, 1, 4, 4])  # 3, 2, 2 and 1 of a class, none of one, not in order
PAIRS = torch.tensor([2, 0, 3, 2, 1, 0, 1, 3])


class Case(NamedTuple):
    """A criterion, its loops (embeddings, labels, class weights if it has any), and labels that it takes."""

    make: Callable[[], nn.Module]
    loops: Callable[..., Tensor]
    labels: Tensor = LABELS
    angular: bool = True  # whether norms do not matter
    order: bool = True  # whether the order of the batch does not matter
    head: bool = False


class Penalty(nn.Module):
    """A constraint as a criterion."""

    def __init__(self, kind: Callable[..., nn.Module] = SEC, **settings) -> None:
        super().__init__()
        self.constraint = kind(**settings)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.constraint(embeddings)


def settled(made: AdaFace) -> AdaFace:
    """In evaluation, with running means that suit the batch."""
    made.mean.fill_(2.0)
    made.deviation.fill_(0.75)
    return made.eval()


def head(margin: str, amount: float, kind=CosineClassifier, **settings) -> Case:
    margins = {"none": NormFace, "cosface": CosFace, "arcface": ArcFace, "sphereface": SphereFace}
    made = margins[margin](*([amount] if amount else []))
    return Case(
        lambda: kind(DIM, CLASSES, made, 16.0, **settings),
        lambda f, y, w: references.cosine_softmax(f, y, w, margin, amount, 16.0),
        head=True,
    )


CASES = {
    "triplet": Case(TripletLoss, references.triplet),
    "semi-hard": Case(SemiHardTripletLoss, references.semihard_triplet),
    "n-pair": Case(NPairLoss, references.npair, order=False),
    "n-pair, all": Case(lambda: NPairLoss(negatives="all"), lambda f, y: references.npair(f, y, 25.0, "all")),
    "multi-similarity": Case(MultiSimilarityLoss, references.multi_similarity),
    "contrastive": Case(ContrastiveLoss, references.contrastive),
    "supcon": Case(SupConLoss, references.supcon),
    "nt-xent": Case(NTXentLoss, references.nt_xent, PAIRS),
    "circle": Case(CircleLoss, references.circle_loss),
    "lifted structure": Case(LiftedStructureLoss, references.lifted_structure),
    "ranked list": Case(RankedListLoss, references.ranked_list),
    "tuplet margin": Case(TupletMarginLoss, references.tuplet_margin),
    "decoupled contrastive": Case(DecoupledContrastiveLoss, references.decoupled_contrastive),
    "smooth AP": Case(lambda: SmoothAPLoss(0.1, per_class=8), lambda f, y: references.smooth_ap(f, y, 0.1)),
    "recall": Case(lambda: RecallSurrogateLoss((1, 3), 0.1, per_class=8),
                   lambda f, y: references.recall_surrogate(f, y, (1, 3), 0.1)),
    "own": Case(lambda: OwnCriterion(own_losses.multi_similarity), references.multi_similarity),
    "own slopes": Case(lambda: OwnCriterion(own_losses.contrastive), references.contrastive),
    "normface": head("none", 0.0),
    "cosface": head("cosface", 0.35),
    "arcface": head("arcface", 0.45),
    "sphereface": head("sphereface", 3),
    "sharded": head("cosface", 0.35, ShardedClassifier),
    "linear": Case(lambda: LinearClassifier(DIM, CLASSES), references.linear_softmax, angular=False, head=True),
    "l2-softmax": Case(
        lambda: LinearClassifier(DIM, CLASSES, 4.0),
        lambda f, y, w: references.linear_softmax(torch.stack([4 * row / (row @ row).sqrt() for row in f]), y, w)
        if len(f) else 0 * f.sum(), angular=False, head=True,
    ),
    "proxies": Case(lambda: ProxyAnchorLoss(DIM, CLASSES), references.proxy_anchor, head=True),
    "sub-centers": Case(
        lambda: SubCenterArcFace(DIM, CLASSES, 0.3, 8.0, 2),
        lambda f, y, w: references.several_centers(f, y, w, max, 0.3, 8.0), head=True,
    ),
    "soft triple": Case(
        lambda: SoftTripleLoss(DIM, CLASSES, 0.1, 8.0, 3), lambda f, y, w: references.soft_triple(f, y, w, 0.1, 8.0),
        head=True,
    ),
    "sphereface2": Case(
        lambda: SphereFace2(DIM, CLASSES, 0.2, 4.0), lambda f, y, w, b: references.sphereface2(f, y, w, b, 0.2, 4.0),
        head=True,
    ),
    "magface": Case(
        lambda: MagFace(DIM, CLASSES, (0.1, 0.5), (0.9, 3.0), 8.0, 2.0),
        lambda f, y, w: references.magface(f, y, w, (0.1, 0.5), (0.9, 3.0), 8.0, 2.0), angular=False, head=True,
    ),
    "adaface": Case(
        lambda: settled(AdaFace(DIM, CLASSES, 0.4, 0.5, 8.0)),
        lambda f, y, w: references.adaface(f, y, w, 0.4, 0.5, 8.0, 2.0, 0.75), angular=False, head=True,
    ),
    "sec": Case(lambda: Penalty(eta=0.5), lambda f, y: 0.5 * references.norm_penalty(f), angular=False),
    "relative sec": Case(
        lambda: Penalty(relative=True), lambda f, y: references.norm_penalty(f, None, True), angular=False
    ),
    "sec of log norms": Case(
        lambda: Penalty(LogNorms, eta=0.5), lambda f, y: 0.5 * references.log_norm_penalty(f), angular=False
    ),
    "fixed sec": Case(lambda: Penalty(radius=2.0), lambda f, y: references.norm_penalty(f, 2.0), angular=False),
    "l2-reg": Case(lambda: Penalty(radius=0.0), lambda f, y: references.norm_penalty(f, 0.0), angular=False),
}
CONSTRAINTS = ("sec", "relative sec", "sec of log norms", "fixed sec", "l2-reg")
HEADS = [name for name, case in CASES.items() if case.head]
LOSSES = [name for name in CASES if name not in CONSTRAINTS]
PAIR_LOSSES = [name for name in LOSSES if name not in HEADS]
HELD = ("sec", "relative sec", "circle", "ranked list", "adaface")
"""Hold a part constant, which no difference quotient does."""
SINGLE = ("contrastive", "own slopes")  # compare single pairs, so that one kind is enough


@pytest.fixture(params=CASES)
def name(request) -> str:
    return request.param


@pytest.fixture(params=LOSSES)
def loss(request) -> str:
    return request.param


@pytest.fixture(autouse=True)
def fresh():
    yield
    torch.compiler.reset()


def criterion(name: str) -> nn.Module:
    torch.manual_seed(1)
    made = CASES[name].make().double()
    for weights in made.parameters():
        weights.data *= 30 if weights.ndim else 0.5
    return made


def batch(seed: int = 0, dtype: torch.dtype = torch.float64, rows: int = 8, dim: int = DIM) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scales = torch.rand(rows, 1, generator=generator, dtype=torch.float64) + 0.5
    draw = torch.randn(rows, dim, generator=generator, dtype=torch.float64)
    return (draw * scales).to(dtype).requires_grad_()


def found(made: Callable[..., Tensor], f: Tensor, y: Tensor, *weights: Tensor) -> list[Tensor]:
    """The value, and the gradients by embeddings and weights."""
    value = made(f, y)
    return [value.detach(), *torch.autograd.grad(value, (f, *weights))]


def test_every_criterion_is_in_the_table() -> None:
    made = {type(case.make()) for case in CASES.values()}
    criteria = {getattr(isosphere.losses, one) for one in isosphere.losses.__all__}
    wanted = {one for one in criteria if inspect.isclass(one) and issubclass(one, nn.Module)}
    elsewhere = {SEC, InfoNCELoss, SigLIPLoss, CrossBatchMemory}  # which have tests of their own
    assert made - {Penalty, OwnCriterion} == wanted - elsewhere


# ---------------------------------------------------------------- value and gradient


@pytest.mark.parametrize("seed", range(3))
def test_value_and_gradient_are_those_of_loops(name: str, seed: int) -> None:
    case, made, f = CASES[name], criterion(name), batch(seed)
    ours = found(made, f, case.labels, *made.parameters())
    theirs = found(lambda f, y: case.loops(f, y, *made.parameters()), f, case.labels, *made.parameters())
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-11)
    assert ours[0] > 0 and all(gradient.any() for gradient in ours[1:])


def test_gradcheck(name: str) -> None:
    if name in HELD:
        pytest.skip("a detached part is no function of f, by construction; the loops above have it detached, too")
    made, labels = criterion(name), CASES[name].labels
    names = list(dict(made.named_parameters()))

    def call(f: Tensor, *weights: Tensor) -> Tensor:
        return torch.func.functional_call(made, dict(zip(names, weights, strict=True)), (f, labels))

    weights = [value.detach().clone().requires_grad_() for value in made.parameters()]
    assert torch.autograd.gradcheck(call, (batch(seed=3), *weights))


def test_proposition_1_the_gradient_is_orthogonal(loss: str) -> None:
    case, made, f = CASES[loss], criterion(loss), batch()
    if not case.angular:
        return
    value, *gradients = found(made, f, case.labels, *made.parameters())
    for vectors, gradient in zip((f, *made.parameters()), gradients, strict=True):
        assert gradient.norm() > 1e-3
        assert not vectors.ndim or (gradient * vectors).sum(-1).abs().max() < 1e-10
    lengths = torch.linspace(0.1, 30, 8, dtype=torch.float64)[:, None]
    longer = found(made, (f.detach() * lengths).requires_grad_(), case.labels)
    torch.testing.assert_close(longer, [value, gradients[0] / lengths])


def test_order_names_of_labels_and_blocks_change_nothing(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, made, f = CASES[loss], criterion(loss), batch()
    whole = found(made, f, case.labels, *made.parameters())
    torch.testing.assert_close(found(made, f, case.labels.to(torch.uint8)), whole[:2])
    if not case.head:
        torch.testing.assert_close(found(made, f, 100 - 3 * case.labels), whole[:2])
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    if case.order:
        moved = f.detach()[order].requires_grad_()
        torch.testing.assert_close(found(made, moved, case.labels[order]), [whole[0], whole[1][order]])
    for module in (slopes, classes):
        monkeypatch.setattr(module, "BLOCK", 1)  # blocks of D rows
    torch.testing.assert_close(found(made, f, case.labels, *made.parameters()), whole)


def test_without_gradients_the_value_is_the_same(name: str) -> None:
    made, labels, f = criterion(name).requires_grad_(False), CASES[name].labels, batch()
    value = made(f, labels)
    with torch.no_grad():
        assert made(f, labels) == value.detach()
    assert value.requires_grad and not made(f.detach(), labels).requires_grad


# ---------------------------------------------------------------- what batches may hold


def test_an_empty_batch_gives_a_zero_that_backpropagates(name: str) -> None:
    made = criterion(name)
    value, gradient, *weights = found(made, batch()[:0], LABELS[:0], *made.parameters())
    assert gradient.shape == (0, DIM)
    assert value == 0 and not any(one.any() for one in weights)


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [4, 4, 4, 4], [2]], ids=["no positives", "no negatives", "single"])
@pytest.mark.parametrize("pair_loss", [one for one in PAIR_LOSSES if one != "nt-xent"])
def test_one_kind_of_pairs_is_what_the_loops_say(pair_loss: str, labels: list[int]) -> None:
    case, f, y = CASES[pair_loss], batch(rows=len(labels)), torch.tensor(labels)
    value, gradient = found(criterion(pair_loss), f, y)
    torch.testing.assert_close([value, gradient], found(case.loops, f, y))
    assert pair_loss in SINGLE or not (value or gradient.any())


def test_zero_vectors_have_finite_loss_and_no_gradient(loss: str) -> None:
    f = batch().detach()
    f[2] = 0
    value, gradient = found(criterion(loss), f.requires_grad_(), CASES[loss].labels)
    assert value.isfinite() and gradient.isfinite().all() and gradient.any()
    assert not CASES[loss].angular or not gradient[2].any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_broken_row_is_named(name: str, bad: float) -> None:
    f, made = batch().detach(), criterion(name)
    f[5, 2] = bad  # alone in its class: mining alone would not show it
    with pytest.raises(NotFinite) as error:
        made(f, CASES[name].labels)
    assert (error.value.name, error.value.row, error.value.rows) == ("embeddings", 5, 8)
    for weights_name, weights in made.named_parameters():
        if not weights.ndim:
            continue
        weights.data[2] = bad
        with pytest.raises(NotFinite) as error:
            made(batch(), LABELS)
        assert (error.value.name, error.value.row, error.value.rows) == (weights_name, 2, CLASSES)


@pytest.mark.parametrize(
    ("what", "value", "change"),
    [
        ("labels", (7,), lambda f, y: (f, y[:7])),
        ("labels", torch.float32, lambda f, y: (f, y.float())),
        ("labels", torch.bool, lambda f, y: (f, y > 1)),
        ("labels", np.ndarray, lambda f, y: (f, y.numpy())),
        ("labels", torch.device("meta"), lambda f, y: (f, y.to("meta"))),
        ("embeddings", (6,), lambda f, y: (f[0], y)),
        ("embeddings", torch.int64, lambda f, y: (f.long(), y)),
        ("embeddings", list, lambda f, y: (f.tolist(), y)),
    ],
)
def test_wrong_input_is_named(loss: str, what: str, value: object, change: Callable) -> None:
    with pytest.raises(BadArgument) as error:
        criterion(loss)(*change(batch(), CASES[loss].labels))
    assert (error.value.name, error.value.value) == (what, value)


@pytest.mark.parametrize("name", HEADS)
def test_labels_and_embeddings_that_a_head_cannot_have_are_named(name: str) -> None:
    made = criterion(name)
    for bad in (5, -1):
        with pytest.raises(BadArgument) as error:
            made(batch(), torch.where(LABELS == 1, bad, LABELS))
        assert (error.value.name, error.value.value) == ("labels", bad)
    for call in (made, *([lambda f, y: made.logits(f)] if hasattr(made, "logits") else [])):
        with pytest.raises(BadArgument) as error:
            call(batch(dim=7), LABELS)
        assert (error.value.name, error.value.value) == ("embeddings", (8, 7))


# ---------------------------------------------------------------- types


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_raised_even_under_autocast(name: str, dtype: torch.dtype) -> None:
    made, labels = criterion(name).float(), CASES[name].labels
    weights, f = list(made.parameters()), batch(dtype=dtype)
    exact = found(made, f.detach().float().requires_grad_(), labels, *weights)
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            value, gradient, *others = found(made, f, labels, *weights)
        assert value.dtype == torch.float32 and gradient.dtype == dtype
        torch.testing.assert_close([value, *others], [exact[0], *exact[2:]])
        torch.testing.assert_close(gradient.float(), exact[1], rtol=1e-2, atol=1e-3)


def test_float64_stays_and_float32_is_near(name: str) -> None:
    made, labels, f = criterion(name), CASES[name].labels, batch()
    wide = found(made, f, labels, *made.parameters())
    narrow = found(made.float(), f.detach().float().requires_grad_(), labels, *made.parameters())
    assert {one.dtype for one in wide} == {torch.float64} and {one.dtype for one in narrow} == {torch.float32}
    torch.testing.assert_close([one.double() for one in narrow], wide, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("wide", ["embeddings", "weights"])
@pytest.mark.parametrize("name", HEADS)
def test_two_types_are_computed_in_the_wider(name: str, wide: str) -> None:
    made = criterion(name).float().double()  # the same numbers in both types
    f = batch(dtype=torch.float32).detach().double().requires_grad_()
    exact, logits = found(made, f, LABELS, *made.parameters()), made.logits(f) if hasattr(made, "logits") else None
    if wide == "embeddings":
        made.float()
    else:
        f = f.detach().float().requires_grad_()
    value, *gradients = found(made, f, LABELS, *made.parameters())
    torch.testing.assert_close(value, exact[0], rtol=1e-12, atol=1e-12)
    assert [one.dtype for one in gradients] == [f.dtype, *(one.dtype for one in made.parameters())]
    torch.testing.assert_close([one.double() for one in gradients], exact[1:], rtol=1e-5, atol=1e-6)
    if logits is not None:
        torch.testing.assert_close(made.logits(f), logits, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- copies, compilers, transforms


def test_copies_and_pickles_are_the_same_and_their_own(name: str) -> None:
    made, labels, f = criterion(name), CASES[name].labels, batch()
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert copied(f, labels) == made(f, labels) and repr(copied) == repr(made)
        for one, other in zip(copied.parameters(), made.parameters(), strict=True):
            assert one is not other and torch.equal(one, other)


def test_compiles_to_one_graph(name: str) -> None:
    made, labels, f = criterion(name).float(), CASES[name].labels, batch(dtype=torch.float32)
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    ours, eager = (found(one, f, labels, *made.parameters()) for one in (compiled, made))
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)  # a margin's slope makes rounding larger
    broken = f.detach().clone()
    broken[3, 1] = torch.nan
    assert compiled(broken, labels).isnan(), "what cannot be read must show"


def test_torch_func_is_autograd(name: str) -> None:
    made, labels, f, other = criterion(name), CASES[name].labels, batch(), batch(seed=1)
    weights = dict(made.named_parameters())
    wanted = [found(made, one, labels, *weights.values()) for one in (f, other)]
    f, other = f.detach(), other.detach()
    constants = {key: value.detach() for key, value in weights.items()}

    def call(given: dict[str, Tensor], f: Tensor, y: Tensor = labels) -> Tensor:
        return torch.func.functional_call(made, given, (f, y))

    def by_embeddings(f: Tensor, y: Tensor = labels) -> Tensor:
        return call(constants, f, y)

    gradient, value = torch.func.grad_and_value(by_embeddings)(f)
    torch.testing.assert_close([value, gradient], wanted[0][:2])
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(jacobian(by_embeddings)(f), wanted[0][1])
    if weights:
        found_weights = torch.func.grad(call)(constants, f)
        torch.testing.assert_close(list(found_weights.values()), wanted[0][2:])
    tangent = torch.randn_like(f)
    value, moved = torch.func.jvp(by_embeddings, (f,), (tangent,))
    torch.testing.assert_close([value, moved], [wanted[0][0], (wanted[0][1] * tangent).sum()])
    with torch.autograd.forward_ad.dual_level():
        dual = by_embeddings(torch.autograd.forward_ad.make_dual(f, tangent))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, moved)
    both, twice = torch.stack([f, other]), torch.stack([labels, labels])
    torch.testing.assert_close(torch.func.vmap(by_embeddings)(both), torch.stack([one[0] for one in wanted]))
    gradients = torch.func.vmap(torch.func.grad(by_embeddings))(both, twice)
    torch.testing.assert_close(gradients, torch.stack([one[1] for one in wanted]))


def test_second_derivatives_of_losses_are_refused(loss: str) -> None:
    made, labels, f = criterion(loss), CASES[loss].labels, batch()
    (gradient,) = torch.autograd.grad(made(f, labels), f, create_graph=True)
    torch.testing.assert_close(gradient, found(made, f, labels)[1])
    second = [
        lambda: gradient.square().sum().backward(),
        lambda: torch.func.hessian(lambda f: made(f, labels))(f.detach()),
        lambda: torch.func.jacrev(torch.func.grad(lambda f: made(f, labels)))(f.detach()),
        lambda: torch.func.jvp(torch.func.grad(lambda f: made(f, labels)), (f.detach(),), (torch.ones_like(f),)),
        lambda: torch.func.jacfwd(torch.func.jacfwd(lambda f: made(f, labels)))(f.detach()),
    ]
    for call in second:
        with pytest.raises(Unsupported):
            call()


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_second_derivatives_of_constraints_are_right(name: str) -> None:
    made, f = criterion(name), batch()
    if name not in HELD:
        assert torch.autograd.gradgradcheck(lambda f: made(f, LABELS), f)
    (gradient,) = torch.autograd.grad(made(f, LABELS), f, create_graph=True)
    rows = [torch.autograd.grad(one, f, retain_graph=True)[0] for one in gradient.flatten()]
    hessian = torch.stack(rows).view(8, DIM, 8, DIM)
    torch.testing.assert_close(torch.func.hessian(lambda f: made(f, LABELS))(f.detach()), hessian)


def test_balanced_directions_have_transforms_and_no_second_derivative() -> None:
    balanced, f, tangent = isosphere.balanced_directions, batch(), torch.randn(8, DIM, dtype=torch.float64)
    (wanted,) = torch.autograd.grad((balanced(f) * tangent).sum(), f, create_graph=True)
    plain = f.detach()
    _, pull = torch.func.vjp(balanced, plain)
    torch.testing.assert_close(pull(tangent)[0], wanted)
    torch.testing.assert_close(torch.func.jvp(balanced, (plain,), (tangent,))[1], wanted)  # their slopes are symmetric
    torch.testing.assert_close(torch.func.jacrev(balanced)(plain), torch.func.jacfwd(balanced)(plain))
    both = torch.func.vmap(balanced)(torch.stack([plain, 2 * plain]))
    torch.testing.assert_close(both[1], balanced(plain))
    with pytest.raises(Unsupported):
        wanted.sum().backward()


# ---------------------------------------------------------------- ranks


def test_two_ranks_are_one_in_float64() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(20, 7, dtype=torch.float64, generator=generator) * torch.rand(20, 1, generator=generator)
    labels = torch.arange(10).repeat(2)
    wanted = ranks.plain_ddp_loops(images, labels, 20)
    for together in ranks.on_ranks(2, ranks.plain_ddp_loops, images, labels, 20):
        assert together.keys() == wanted.keys() == ranks.PLAIN_LOOPS.keys()
        torch.testing.assert_close(together, wanted, rtol=1e-7, atol=1e-9)
    made = {type(make()) for make in ranks.PLAIN_LOOPS.values()}
    assert made == {type(case.make()) for case in CASES.values()} - {Penalty, ShardedClassifier}


# ---------------------------------------------------------------- settings


SETTINGS = [
    (TripletLoss, "margin", (-0.1, float("nan"), float("inf"))),
    (SemiHardTripletLoss, "margin", (-0.1, float("inf"))),
    (NPairLoss, "scale", (0, -2.0, float("nan"), float("inf"), True)),
    (NPairLoss, "negatives", ("some",)),
    (MultiSimilarityLoss, "alpha", (0, -2.0, float("nan"), float("inf"))),
    (MultiSimilarityLoss, "beta", (0, -2.0, float("inf"))),
    (MultiSimilarityLoss, "base", (float("nan"), float("inf"))),
    (MultiSimilarityLoss, "epsilon", (float("nan"), "0.1")),
    (ContrastiveLoss, "positive_margin", (float("nan"), float("inf"))),
    (ContrastiveLoss, "negative_margin", (float("nan"), None)),
    (SupConLoss, "temperature", (0, -2.0, float("nan"), float("inf"))),
    (NTXentLoss, "temperature", (0, -2.0, float("inf"))),
    (NTXentLoss, "weight", (0, float("inf"))),
    (CircleLoss, "margin", (-0.1, 1.1)),
    (CircleLoss, "scale", (0, float("inf"))),
    (LiftedStructureLoss, "margin", (-0.1, float("nan"))),
    (RankedListLoss, "margin", (-0.1,)),
    (RankedListLoss, "boundary", (0, float("nan"))),
    (RankedListLoss, "temperature", (0, -1.0)),
    (TupletMarginLoss, "margin", (-0.1, 5.73)),
    (TupletMarginLoss, "scale", (0,)),
    (DecoupledContrastiveLoss, "temperature", (0, float("nan"))),
    (SmoothAPLoss, "temperature", (0, float("inf"))),
    (SmoothAPLoss, "per_class", (1, 2.5)),
    (RecallSurrogateLoss, "ks", ((), (0, 1), (1.5,))),
    (RecallSurrogateLoss, "temperature", (0,)),
    (RecallSurrogateLoss, "rank_temperature", (0, -1.0)),
    (RecallSurrogateLoss, "per_class", (1,)),
    (CosFace, "margin", (-0.1, 1.1, 35, float("nan"))),
    (ArcFace, "margin", (-0.1, 1.6, 28.6, float("nan"))),
    (SphereFace, "margin", (1.5, 0, 11, float("nan"))),
    (lambda **given: CosineClassifier(DIM, CLASSES, **given), "scale", (0, -1.0, float("inf"))),
    (lambda **given: CosineClassifier(DIM, CLASSES, **given), "margin", (0.35, CosFace, None)),
    (lambda **given: ShardedClassifier(DIM, CLASSES, **given), "scale", (0, float("nan"))),
    (lambda **given: ShardedClassifier(DIM, CLASSES, **given), "rate", (0.0, 1.5, float("nan"))),
    (lambda **given: LinearClassifier(DIM, CLASSES, **given), "length", (0, float("nan"))),
    (lambda **given: ProxyAnchorLoss(DIM, CLASSES, **given), "scale", (0, -1.0)),
    (lambda **given: SubCenterArcFace(DIM, CLASSES, **given), "centers", (0, 1.5)),
    (lambda **given: SubCenterArcFace(DIM, CLASSES, **given), "margin", (-0.1, 1.6)),
    (lambda **given: SoftTripleLoss(DIM, CLASSES, **given), "temperature", (0, -1.0)),
    (lambda **given: SoftTripleLoss(DIM, CLASSES, **given), "spread", (-1.0,)),
    (lambda **given: SphereFace2(DIM, CLASSES, **given), "balance", (0, 1, -0.5)),
    (lambda **given: SphereFace2(DIM, CLASSES, **given), "power", (0,)),
    (lambda **given: MagFace(DIM, CLASSES, **given), "margins", ((0.5, 0.4), (0.1, 2.0))),
    (lambda **given: MagFace(DIM, CLASSES, **given), "norms", ((0.0, 5.0), (3.0, 2.0))),
    (lambda **given: AdaFace(DIM, CLASSES, **given), "rho", (-0.1, 2.0)),
    (lambda **given: AdaFace(DIM, CLASSES, **given), "sharpness", (0,)),
    (lambda **given: ProxyAnchorLoss(DIM, CLASSES, **given), "margin", (float("inf"),)),
]


@pytest.mark.parametrize(("make", "setting", "values"), SETTINGS)
def test_settings_that_cannot_be_are_named(make: Callable, setting: str, values: tuple) -> None:
    for value in values:
        with pytest.raises(BadArgument) as error:
            make(**{setting: value})
        assert error.value.name == setting and error.value.value is value


FUNCTIONS = {
    "triplet": {"margin": -1.0}, "semihard_triplet": {"margin": -1.0}, "npair": {"scale": 0},
    "multi_similarity": {"beta": -1.0}, "contrastive": {"positive_margin": float("nan")}, "supcon": {"temperature": 0},
    "nt_xent": {"temperature": 0}, "circle": {"scale": 0}, "lifted_structure": {"margin": -1.0},
    "ranked_list": {"boundary": 0}, "tuplet_margin": {"scale": 0}, "decoupled_contrastive": {"temperature": 0},
    "smooth_ap": {"per_class": 1}, "recall_surrogate": {"ks": ()},
    "cosine_softmax": {"scale": 0}, "proxy_anchor": {"scale": 0},
}  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_check_their_settings_too(function: str) -> None:
    weights = [torch.ones(CLASSES, DIM).double()] if function in ("cosine_softmax", "proxy_anchor") else []
    ((setting, value),) = FUNCTIONS[function].items()
    with pytest.raises(BadArgument) as error:
        getattr(isosphere.functional, function)(batch(), PAIRS, *weights, **{setting: value})
    assert error.value.name == setting


@pytest.mark.parametrize(
    "made",
    [
        TripletLoss(0.7), SemiHardTripletLoss(0.9), NPairLoss(3, negatives="all"), MultiSimilarityLoss(1, 9, 0.3, 0.4),
        ContrastiveLoss(0.8, 0.1), SupConLoss(0.3), NTXentLoss(0.3, 2.0), CircleLoss(0.2, 7.0),
        LiftedStructureLoss(2.0), RankedListLoss(0.2, 1.1, 3.0), TupletMarginLoss(0.2, 9.0),
        DecoupledContrastiveLoss(0.4), SmoothAPLoss(0.3, 4), RecallSurrogateLoss((1, 2), 0.3, 2.0, 4),
    ],
    ids=repr,
)  # fmt: skip
def test_criteria_pass_their_settings_on_and_show_them(made: nn.Module) -> None:
    names = {
        SemiHardTripletLoss: "semihard_triplet", NTXentLoss: "nt_xent", NPairLoss: "npair", SmoothAPLoss: "smooth_ap",
        SupConLoss: "supcon",
    }  # fmt: skip
    plain = re.sub(r"(?<=.)([A-Z])", r"_\1", type(made).__name__.removesuffix("Loss")).lower()
    function = names.get(type(made), plain)
    settings = {one: getattr(made, one) for one in inspect.signature(type(made)).parameters}
    weight, f = settings.pop("weight", 1.0), batch()
    found = weight * getattr(isosphere.functional, function)(f, PAIRS, **settings)
    assert made(f, PAIRS) == found != type(made)()(f, PAIRS)
    assert all(f"{one}={value!r}" in repr(made) for one, value in settings.items())


@pytest.mark.parametrize(("labels", "warned"), [([0, 1, 2, 3], 1), ([0, 1, 2, 0], 0), ([5, 5, 5, 5], 1), ([2], 0)])
@pytest.mark.parametrize("pair_loss", [one for one in PAIR_LOSSES if one not in ("nt-xent", *SINGLE)])
def test_labels_all_alike_or_all_different_warn_where_the_loss_is_called(
    pair_loss: str, labels: list[int], warned: int
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        criterion(pair_loss)(batch(rows=len(labels)), torch.tensor(labels))
    assert [note.filename for note in caught] == [__file__] * warned

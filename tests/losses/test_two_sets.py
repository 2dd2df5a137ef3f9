"""InfoNCE and SigLIP against torch's own cross-entropy and log-sigmoid over all pairs at once."""

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import isosphere
import ranks
from isosphere.errors import BadArgument, NotFinite, Unsupported
from isosphere.losses import InfoNCELoss, SigLIPLoss, slopes
from isosphere.losses.two_sets import info_nce, siglip

N, MORE, DIM = 9, 4, 5
LABELS = torch.tensor([0, 1, 2, 0, 3, 4, 5, 1, 6])
MASK = torch.rand(N, N + MORE, generator=torch.Generator().manual_seed(0)) < 0.2


def rows(seed: int, count: int = N, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, DIM, dtype=torch.float64, generator=generator) * (seed + 1)
    return drawn.to(dtype).requires_grad_()


def plain_info_nce(q, k, temperature, labels=None, negatives=None, mask=None, symmetric=True) -> Tensor:
    every = k if negatives is None else torch.cat([k, negatives])
    hidden = torch.zeros(len(q), len(every), dtype=torch.bool) if mask is None else mask.clone()
    if labels is not None:
        hidden[:, : len(q)] |= labels[:, None] == labels
    hidden[range(len(q)), range(len(q))] = False
    logits = (F.normalize(q) @ F.normalize(every).T / temperature).masked_fill(hidden, -math.inf)
    own = torch.arange(len(q))
    value = F.cross_entropy(logits, own)
    return (value + F.cross_entropy(logits[:, : len(q)].T, own)) / 2 if symmetric else value


def plain_siglip(q, k, scale, bias) -> Tensor:
    signs = 2 * torch.eye(len(q), dtype=q.dtype) - 1
    return -F.logsigmoid(signs * (scale * F.normalize(q) @ F.normalize(k).T + bias)).sum() / len(q)


CASES = {
    "clip": {},
    "multiple negatives": {"symmetric": False},
    "more negatives": {"negatives": rows(2, MORE)},
    "labels": {"labels": LABELS},
    "everything": {"labels": LABELS, "negatives": rows(2, MORE), "mask": MASK},
    "everything, one way": {"labels": LABELS, "negatives": rows(2, MORE), "mask": MASK, "symmetric": False},
}


@pytest.mark.parametrize("block", [2**22, 1])
@pytest.mark.parametrize("case", CASES)
def test_info_nce_is_torchs_cross_entropy(case, block, monkeypatch):
    monkeypatch.setattr(slopes, "BLOCK", block)
    temperature = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    given = [rows(0), rows(1), temperature, *[one for one in CASES[case].values() if getattr(one, "requires_grad", 0)]]
    ours, plain = (loss(*given[:3], **CASES[case]) for loss in (info_nce, plain_info_nce))
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(torch.autograd.grad(ours, given), torch.autograd.grad(plain, given))


@pytest.mark.parametrize("block", [2**22, 1])
def test_siglip_is_torchs_log_sigmoid(block, monkeypatch):
    monkeypatch.setattr(slopes, "BLOCK", block)
    given = [rows(0), rows(1), *(torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in (3.0, -1.0))]
    ours, plain = (loss(*given) for loss in (siglip, plain_siglip))
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(torch.autograd.grad(ours, given), torch.autograd.grad(plain, given))


CRITERIA = {"info-nce": lambda: InfoNCELoss(0.2, learned=True), "siglip": lambda: SigLIPLoss(4.0, -2.0)}


@pytest.fixture(params=CRITERIA)
def made(request):
    yield CRITERIA[request.param]()
    torch.compiler.reset()


def gradients(criterion, *given: Tensor) -> list[Tensor]:
    value = criterion(*given)
    return [value.detach(), *torch.autograd.grad(value, (*given, *criterion.parameters()))]


def test_copies_compilers_halves_and_torch_func(made):
    given = rows(0, dtype=torch.float32), rows(1, dtype=torch.float32)
    wanted = gradients(made, *given)
    assert all(one.any() for one in wanted)
    torch.testing.assert_close(gradients(copy.deepcopy(made), *given), wanted)
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled, *given), wanted, rtol=1e-4, atol=1e-5)
    halves = [one.detach().bfloat16().requires_grad_() for one in given]
    exact = gradients(made, *[one.detach().float().requires_grad_() for one in halves])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gradients(made, *halves)
    assert found[0].dtype == torch.float32 and found[1].dtype == torch.bfloat16
    torch.testing.assert_close([one.float() for one in found], exact, rtol=1e-2, atol=1e-3)
    plain = [one.detach() for one in given]
    torch.testing.assert_close(torch.func.grad(lambda q: made(q, plain[1]))(plain[0]), wanted[1])
    (first,) = torch.autograd.grad(made(*given), given[0], create_graph=True)
    with pytest.raises(Unsupported):
        first.sum().backward()


def test_empty_sets_zero_vectors_and_broken_rows(made):
    assert made(rows(0)[:0], rows(1)[:0]) == 0
    zero = rows(0).detach()
    zero[2] = 0
    value, *found = gradients(made, zero.requires_grad_(), rows(1))
    assert value.isfinite() and all(one.isfinite().all() for one in found) and not found[0][2].any()
    broken = rows(1).detach()
    broken[4, 0] = math.nan
    with pytest.raises(NotFinite) as error:
        made(rows(0), broken)
    assert (error.value.name, error.value.row) == ("keys", 4)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("keys", lambda: info_nce(rows(0), rows(1)[:4])),
        ("keys", lambda: siglip(rows(0), rows(1)[:, :3])),
        ("negatives", lambda: info_nce(rows(0), rows(1), negatives=rows(2)[:, :2])),
        ("labels", lambda: info_nce(rows(0), rows(1), labels=LABELS[:3])),
        ("mask", lambda: info_nce(rows(0), rows(1), mask=MASK)),
        ("temperature", lambda: info_nce(rows(0), rows(1), 0.0)),
        ("temperature", lambda: InfoNCELoss(-1.0)),
        ("scale", lambda: SigLIPLoss(scale=0)),
        ("bias", lambda: SigLIPLoss(bias=math.nan)),
    ],
)
def test_what_does_not_fit_is_named(name, call):
    with pytest.raises(BadArgument) as error:
        call()
    assert error.value.name == name


def test_a_learned_temperature_stays_within_its_limit():
    criterion = InfoNCELoss(0.07, learned=True, most=20.0).double()
    with torch.no_grad():
        criterion.log_scale.fill_(9.0)
    torch.testing.assert_close(criterion(rows(0), rows(1)), info_nce(rows(0), rows(1), 1 / 20))


def on_each_rank(images: Tensor, captions: Tensor) -> list[Tensor]:
    """The loss of all rows and the gradient by one weight, as DDP averages it."""
    world, rank = isosphere.distributed.world(), isosphere.distributed.rank()
    mine = slice(rank * len(images) // world, (rank + 1) * len(images) // world)
    weight = torch.eye(DIM, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(len(images))[mine]
    queries, _ = isosphere.gather(images[mine] @ weight, labels)
    keys, _ = isosphere.gather(captions[mine] @ weight, labels)
    value = info_nce(queries, keys, 0.2) + siglip(queries, keys)
    (gradient,) = torch.autograd.grad(value, weight)
    if world > 1:
        torch.distributed.all_reduce(gradient)
    return [value.detach(), gradient / world]


def test_two_ranks_are_one():
    given = rows(0, 8).detach(), rows(1, 8).detach()
    wanted = on_each_rank(*given)
    for found in ranks.on_ranks(2, on_each_rank, *given):
        torch.testing.assert_close(found, wanted)

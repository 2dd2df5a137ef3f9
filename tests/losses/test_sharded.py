"""Class weights on two gloo ranks against one process: values, gradients, clipping, checkpoints; and drawn classes."""

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import isosphere
import ranks
from isosphere import distributed
from isosphere.errors import BadArgument, Unsupported
from isosphere.losses import sampling, sharded
from isosphere.losses.margins import ArcFace, CosFace, CosineClassifier, SphereFace
from isosphere.losses.sharded import ShardedClassifier

MARGINS = {"cosface": CosFace(0.35), "arcface": ArcFace(0.45), "sphereface": SphereFace(3)}
CLASSES, DIM, LIMIT = 7, 5, 0.5
GENERATOR = torch.Generator().manual_seed(5)
IMAGES = torch.randn(8, 6, dtype=torch.float64, generator=GENERATOR)
LABELS = torch.tensor([0, 6, 3, 3, 2, 4, 6, 1])


def test_a_copy_is_sharded_too():
    head = ShardedClassifier(DIM, CLASSES)
    for copied in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert copied.weights is not head.weights and copied.weights.shard == head.weights.shard == (0, CLASSES)


def mine(values: Tensor) -> Tensor:
    return values.chunk(dist.get_world_size())[dist.get_rank()] if dist.is_initialized() else values


def parts(head: nn.Module) -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    network, head = nn.Linear(6, DIM).double(), head.double()
    parameters = [*network.parameters(), *head.parameters()]
    return network, head, sampling.RowSGD(parameters, lr=0.2, momentum=0.9, weight_decay=0.01)


def go_on(network: nn.Module, head: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> dict[str, Any]:
    """So many clipped steps as our loop does them; what one process and two must agree on, joined on rank 0."""
    wrapped = DistributedDataParallel(network) if dist.is_initialized() else network
    parameters = [*network.parameters(), *head.parameters()]
    losses, lengths, first = [], [], {}
    for _ in range(steps):
        optimizer.zero_grad()
        loss = head(*isosphere.gather(wrapped(mine(IMAGES)), mine(LABELS)))
        loss.backward()
        distributed.average_gradients(list(head.parameters()))
        first = first or {"network": network.weight.grad.clone(), "head": head.weights.grad.clone()}
        if isinstance(head, ShardedClassifier):
            lengths.append(distributed.clip_gradients(parameters, LIMIT))
        else:
            lengths.append(nn.utils.clip_grad_norm_(parameters, LIMIT))
        optimizer.step()
        losses.append(loss.detach())
    return {
        "losses": torch.stack(losses),
        "norms": torch.stack(lengths),
        "gradients": first,
        "network": network.state_dict(),
        "head": sharded.whole_state(head),
        "optimizer": sharded.whole_optimizer_state(optimizer),
    }


def trajectory(name: str, steps: int, start: dict[str, Any] | None = None, plain: bool = False) -> dict[str, Any]:
    torch.manual_seed(0)
    kind = CosineClassifier if plain else ShardedClassifier
    network, head, optimizer = parts(kind(DIM, CLASSES, MARGINS[name], 16.0))
    if start is not None:
        start = copy.deepcopy(start)  # optimizers go on in the very tensors that they load
        network.load_state_dict(start["network"])
        head.load_state_dict(sharded.own_state(head, start["head"]))
        optimizer.load_state_dict(sharded.own_optimizer_state(optimizer, start["optimizer"]))
    return go_on(network, head, optimizer, steps)


def drawn_case() -> dict[str, Tensor]:
    """A step with drawn classes: the loss, the gradient by the embeddings, the drawn classes and their gradient."""
    torch.manual_seed(0)
    head = ShardedClassifier(DIM, 60, CosFace(0.35), 16.0, rate=0.25, seed=3).double()
    f, y = IMAGES[:, :DIM].clone().requires_grad_(), LABELS * 8
    loss = head(f, y)
    loss.backward()
    gradient = head.weights.grad.coalesce()
    index = gradient.indices()[0] + head.first
    return {"loss": loss.detach(), "f": f.grad, "drawn": index, "w": gradient.values(), "draws": head.draws}


def everything_on_a_rank(single: dict[str, Any]) -> dict[str, Any]:
    found = {name: trajectory(name, 3) for name in MARGINS}
    found["resumed"] = trajectory("arcface", 2, single)
    found["drawn"] = drawn_case()
    head = ShardedClassifier(DIM, CLASSES)
    found["shape"], found["repr"] = head.weights.shape, repr(head)
    try:
        ShardedClassifier(DIM, 1)
    except BadArgument as error:
        found["error"] = error.name, error.value
    return found


@pytest.fixture(scope="module")
def single() -> dict[str, Any]:
    return {name: trajectory(name, 3, plain=True) for name in MARGINS}


@pytest.fixture(scope="module")
def both(single: dict[str, Any]) -> list[dict[str, Any]]:
    return ranks.on_ranks(2, everything_on_a_rank, single["arcface"])


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", MARGINS)
def test_two_ranks_are_one_process(name: str, single: dict[str, Any], both: list[dict[str, Any]]) -> None:
    wanted = single[name]
    assert wanted["norms"].min() > LIMIT, "clipping has something to do"
    for found in both:
        for part in ("losses", "norms", "network"):
            same(found[name][part], wanted[part])
        same(found[name]["gradients"]["network"], wanted["gradients"]["network"])
    same(torch.cat([found[name]["gradients"]["head"] for found in both]), wanted["gradients"]["head"])
    same(both[0][name]["head"], wanted["head"])
    moments = [states["optimizer"]["state"][2]["momentum_buffer"] for states in (both[0][name], wanted)]
    assert moments[1].shape == (CLASSES, DIM)
    same(*moments)
    assert [found["shape"][0] for found in both] == [3, 4]


@pytest.mark.parametrize("plain", [True, False])
def test_a_checkpoint_of_two_ranks_goes_on_in_one_process(plain: bool, both: list[dict[str, Any]]) -> None:
    wanted = trajectory("arcface", 5, plain=True)
    found = trajectory("arcface", 2, both[0]["arcface"], plain)
    same(found["losses"], wanted["losses"][3:])
    same(found["head"], wanted["head"])


def test_a_checkpoint_of_one_process_goes_on_on_two_ranks(both: list[dict[str, Any]]) -> None:
    wanted = trajectory("arcface", 5, plain=True)
    for found in both:
        same(found["resumed"]["losses"], wanted["losses"][3:])
    same(both[0]["resumed"]["head"], wanted["head"])


def test_drawn_classes_on_two_ranks(both: list[dict[str, Any]]) -> None:
    found = [one["drawn"] for one in both]
    drawn = torch.cat([one["drawn"] for one in found])
    assert [len(one["drawn"]) for one in found] == [8, 8]  # a quarter of 30 each
    torch.manual_seed(0)
    w = CosineClassifier(DIM, 60).double().weights
    f, y = IMAGES[:, :DIM].clone().requires_grad_(), LABELS * 8
    assert torch.isin(y, drawn).all()
    cosines = nn.functional.normalize(f) @ nn.functional.normalize(w[drawn]).T
    true = y[:, None] == drawn
    loss = nn.functional.cross_entropy(16 * (cosines - 0.35 * true.double()), true.int().argmax(1))
    gradients = torch.autograd.grad(loss, (f, w))
    for one in found:
        same(one["loss"], loss.detach())
        same(one["f"], gradients[0])
    same(torch.cat([one["w"] for one in found]), gradients[1][drawn])


def test_a_head_shows_what_it_holds_and_refuses_too_few_classes(both: list[dict[str, Any]]) -> None:
    assert "classes=4 of 7 from 3" in both[1]["repr"]
    assert both[0]["error"] == ("classes", 1)


def test_one_process_is_the_plain_head() -> None:
    for name in MARGINS:
        found, wanted = (trajectory(name, 3, plain=plain) for plain in (False, True))
        for part in ("losses", "norms", "head", "network"):
            same(found[part], wanted[part])


def test_a_rate_that_draws_all_is_the_whole_softmax() -> None:
    f, heads = IMAGES[:, :DIM].clone().requires_grad_(), []
    for rate in (1.0, 0.999):
        torch.manual_seed(0)
        heads.append(ShardedClassifier(DIM, 20, ArcFace(), 16.0, rate).double())
    losses = [head(f, LABELS) for head in heads]
    gradients = [torch.autograd.grad(loss, (f, head.weights)) for loss, head in zip(losses, heads, strict=True)]
    same(*losses)
    same(gradients[0][0], gradients[1][0])
    assert gradients[1][1].is_sparse
    same(gradients[0][1], gradients[1][1].to_dense())


def test_evaluation_sees_all_classes() -> None:
    torch.manual_seed(0)
    head = ShardedClassifier(DIM, 40, CosFace(), 16.0, rate=0.3).double()
    f, whole = IMAGES[:, :DIM], CosineClassifier(DIM, 40, CosFace(), 16.0).double()
    whole.weights = nn.Parameter(head.weights.detach().clone())
    with torch.no_grad():
        same(head(f, LABELS), whole(f, LABELS))
    same(head.eval()(f, LABELS), whole(f, LABELS))
    assert head.draws == 0 and head.train()(f, LABELS) < whole(f, LABELS) and head.draws == 1


def test_the_true_classes_are_always_drawn_and_the_others_equally_often() -> None:
    places, counts = torch.tensor([5, 17, 17, -3, 200, 99]), torch.zeros(100)
    for step in range(2000):
        index = sampling.draw(places, 1000, 100, 0.1, seed=7, step=torch.tensor(step))
        assert len(index) == 10 and (index.diff() > 0).all() and torch.isin(torch.tensor([5, 17, 99]), index).all()
        counts[index] += 1
    others = torch.tensor([n for n in range(100) if n not in (5, 17, 99)])
    expected = 2000 * 7 / 97
    # chi-square with 96 degrees of freedom (variance of a draw without replacement is a little less): 5 sigma
    chi = ((counts[others] - expected).square() / expected).sum().item()
    assert 96 - 5 * 192**0.5 < chi < 96 + 5 * 192**0.5


def test_draws_differ_by_step_and_seed_and_repeat() -> None:
    def drawn(seed: int, step: int, count: int = 4) -> tuple[int, ...]:
        return tuple(sampling.draw(torch.arange(count), 0, 50, 0.2, seed, torch.tensor(step)).tolist())

    assert drawn(0, 1) == drawn(0, 1)
    assert len({drawn(seed, step) for seed in range(4) for step in range(1, 5)}) == 16
    assert len(drawn(0, 1, 30)) == 30, "room for a batch of as many classes"


def test_a_class_has_the_same_luck_on_any_number_of_ranks() -> None:
    nobody, step = torch.tensor([-1]), torch.tensor(9)
    luck = [sampling.draw(nobody, first, 50, 1 / 50, 0, step).item() + first for first in (0, 50)]
    assert sampling.draw(nobody, 0, 100, 1 / 100, 0, step).item() in luck


def test_undrawn_rows_rest_with_their_momentum() -> None:
    torch.manual_seed(0)
    start, steps = torch.randn(6, 3), [(index, torch.randn(2, 3)) for index in ([0, 2], [2, 5], [0, 2])]
    weights, moments = start.clone(), torch.zeros(6, 3)
    parameter, dense = nn.Parameter(start.clone()), nn.Parameter(torch.ones(2))
    optimizer = sampling.RowSGD([parameter, dense], lr=0.1, momentum=0.9, weight_decay=0.02)
    for index, gradient in steps:
        for row, change in zip(index, gradient, strict=True):
            moments[row] = 0.9 * moments[row] + change + 0.02 * weights[row]
            weights[row] -= 0.1 * moments[row]
        optimizer.zero_grad()
        ((sampling.rows(parameter, torch.tensor(index)) * gradient).sum() + dense.sum()).backward()
        optimizer.step()
    torch.testing.assert_close(parameter.detach(), weights)
    torch.testing.assert_close(optimizer.state[parameter]["momentum_buffer"], moments)
    assert torch.equal(parameter[1], start[1]) and (dense < 1).all()


def test_clipping_counts_sparse_rows_and_sums_of_passes() -> None:
    weights = nn.Parameter(torch.randn(6, 3))
    for index in ([0, 2], [2, 5]):
        sampling.rows(weights, torch.tensor(index)).sum().backward()
    norm = distributed.clip_gradients([weights], 1.0)
    assert norm.item() == pytest.approx((3 * (1 + 4 + 1)) ** 0.5)
    assert weights.grad.to_dense().norm().item() == pytest.approx(1.0, abs=1e-5)
    assert distributed.clip_gradients([nn.Parameter(torch.ones(2))], 1.0) == 0


def test_wrong_input_is_named() -> None:
    head = ShardedClassifier(DIM, CLASSES).double()
    for name, value, call in (
        ("labels", 7, lambda: head(IMAGES[:, :DIM], LABELS + 1)),
        ("the checkpoint's classes", 9, lambda: sharded.own_state(head, {"weights": torch.ones(9, DIM)})),
    ):
        with pytest.raises(BadArgument) as error:
            call()
        assert (error.value.name, error.value.value) == (name, value)
    with pytest.raises(BadArgument):
        sampling.RowSGD(head.parameters()).step(lambda: 0)


def test_drawn_classes_are_refused_under_torch_func() -> None:
    head, f = ShardedClassifier(DIM, CLASSES, rate=0.5).double(), IMAGES[:, :DIM].clone()
    with pytest.raises(Unsupported):
        torch.func.grad(head)(f, LABELS)
    head.eval()
    wanted = torch.autograd.grad(head(leaf := f.clone().requires_grad_(), LABELS), leaf)[0]
    same(torch.func.grad(head)(f, LABELS), wanted)


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("products", [None, torch.bfloat16])
def test_embeddings_in_float64_go_with_weights_in_float32(rate: float, products: torch.dtype | None) -> None:
    head = ShardedClassifier(DIM, CLASSES, rate=rate, products=products)
    f = IMAGES[:, :DIM].double().requires_grad_()
    head(f, LABELS).backward()
    assert f.grad.any() and f.grad.dtype == torch.float64 and head.weights.grad.dtype == torch.float32


def test_weights_stay_float32_and_equal_the_plain_head() -> None:
    torch.manual_seed(0)
    head = ShardedClassifier(DIM, CLASSES).half()
    torch.manual_seed(0)
    assert torch.equal(head.weights, CosineClassifier(DIM, CLASSES).weights) and head.weights.dtype == torch.float32

"""Multi-hot labels (N, C) in every pair loss: two samples are positive if they share a label."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import isosphere
import own_losses
import ranks
import references
from isosphere import functional
from isosphere.errors import BadArgument
from isosphere.losses import slopes

pytestmark = pytest.mark.filterwarnings("ignore:all labels of the batch are")
LOSSES = {
    "triplet": (functional.triplet, references.triplet),
    "semi-hard": (functional.semihard_triplet, references.semihard_triplet),
    "n-pair, all": (
        lambda f, y: functional.npair(f, y, negatives="all"), lambda f, y: references.npair(f, y, 25.0, "all")
    ),
    "multi-similarity": (functional.multi_similarity, references.multi_similarity),
    "contrastive": (functional.contrastive, references.contrastive),
    "supcon": (functional.supcon, references.supcon),
    "own": (own_losses.multi_similarity, references.multi_similarity),
    "own slopes": (own_losses.contrastive, references.contrastive),
}  # fmt: skip
SEVERAL = torch.tensor(
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1]]
)  # chains that are no classes; none at all, twice; one alone


@pytest.fixture(params=LOSSES)
def name(request) -> str:
    return request.param


def batch(rows: int = 8, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 5, generator=generator, dtype=torch.float64).requires_grad_()


def found(loss: Callable[..., Tensor], f: Tensor, y: Tensor) -> list[Tensor]:
    value = loss(f, y)
    return [value.detach(), *torch.autograd.grad(value, f)]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_one_hot_labels_are_plain_ones(name: str, dtype: torch.dtype) -> None:
    plain, f = torch.tensor([3, 0, 3, 4, 0, 1, 4, 4]), batch()
    hot = torch.nn.functional.one_hot(plain).to(dtype)
    assert all(map(torch.equal, found(LOSSES[name][0], f, hot), found(LOSSES[name][0], f, plain)))


@pytest.mark.parametrize("seed", range(4))
def test_several_labels_are_what_loops_say(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = LOSSES[name]
    labels = torch.rand(8, 4, generator=torch.Generator().manual_seed(seed)) < 0.3 if seed else SEVERAL
    f = batch(seed=seed)
    wanted = found(theirs, f, labels)
    assert wanted[0] > 0 and wanted[1].any()
    torch.testing.assert_close(found(ours, f, labels), wanted, rtol=1e-9, atol=1e-12)
    monkeypatch.setattr(slopes, "BLOCK", 1)  # blocks of 5 rows
    torch.testing.assert_close(found(ours, f, labels), wanted, rtol=1e-9, atol=1e-12)


def test_they_compile_to_one_graph_and_have_transforms(name: str) -> None:
    loss, f = LOSSES[name][0], batch()
    wanted = found(loss, f, SEVERAL)
    torch.compiler.reset()
    torch.testing.assert_close(found(torch.compile(loss, fullgraph=True, backend="aot_eager"), f, SEVERAL), wanted)
    twice = torch.stack([f.detach(), f.detach()]), torch.stack([SEVERAL, torch.zeros_like(SEVERAL)])
    values = torch.func.vmap(loss)(*twice)
    torch.testing.assert_close(values[0], wanted[0])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(*twice)[0], wanted[1])


@pytest.mark.parametrize(
    ("labels", "value"),
    [
        (SEVERAL.double(), torch.float64), (SEVERAL[:7], (7, 4)), (SEVERAL[:, :1], (8, 1)), (SEVERAL[None], (1, 8, 4)),
        (2 * SEVERAL, 2), (-SEVERAL, -1), (SEVERAL.to("meta"), torch.device("meta")),
    ],
    ids=["floats", "rows", "a column", "three axes", "counts", "negative", "device"],
)  # fmt: skip
def test_what_is_not_multi_hot_is_named(name: str, labels: Tensor, value: object) -> None:
    with pytest.raises(BadArgument) as error:
        LOSSES[name][0](batch(), labels)
    assert (error.value.name, error.value.value) == ("labels", value)


@pytest.mark.parametrize("labels", [SEVERAL, SEVERAL.bool()], ids=["integers", "bools"])
@pytest.mark.parametrize(
    "refuses",
    [
        isosphere.NTXentLoss(), isosphere.LinearClassifier(5, 4), isosphere.CosineClassifier(5, 4),
        isosphere.ShardedClassifier(5, 4), isosphere.ProxyAnchorLoss(5, 4),
        lambda f, y: isosphere.ClassBatches(y, 4, 2, seed=0),
    ],
)  # fmt: skip
def test_what_needs_one_label_refuses_several(refuses: Callable, labels: Tensor) -> None:
    with pytest.raises(BadArgument) as error:
        refuses(batch().float(), labels)
    assert error.value.name == "labels" and "(8, 4)" in str(error.value.value)


def test_the_first_two_of_a_class_are_refused() -> None:
    with pytest.raises(BadArgument) as error:
        isosphere.NPairLoss()(batch(), SEVERAL)
    assert (error.value.name, error.value.value) == ("negatives", "positives")


@pytest.mark.parametrize(
    ("labels", "warned"), [([[1, 0], [0, 1], [0, 0]], 1), ([[1, 1], [0, 1], [0, 1]], 1), ([[1, 1], [0, 1], [1, 0]], 0)]
)
def test_one_kind_of_pairs_warns(labels: list[list[int]], warned: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for loss in (functional.triplet, own_losses.multi_similarity):
            loss(batch(3), torch.tensor(labels))
    assert [note.filename for note in caught] == [__file__] * (2 * warned)


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), settings=None):
        made = function(*arguments, **(settings or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            self.elements = max(self.elements, one.numel() if isinstance(one, Tensor) else 0)
        return made


@pytest.mark.parametrize("several", [False, True], ids=["plain", "multi-hot"])
def test_no_more_than_a_block_is_made_at_a_time(name: str, several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.arange(60) % 12
    labels = torch.nn.functional.one_hot(labels) if several else labels
    monkeypatch.setattr(slopes, "BLOCK", 1)  # blocks of 5 rows
    with Largest() as seen:
        LOSSES[name][0](batch(60), labels).backward()
    assert seen.elements == (12 * 60 if several else 5 * 60)


def test_two_ranks_are_one() -> None:
    wanted = ranks.several_labels(batch().detach(), SEVERAL)
    assert len(wanted) == 2 and all(one.any() for one in wanted)
    for rank, mine in enumerate(ranks.on_ranks(2, ranks.several_labels, batch().detach(), SEVERAL)):
        torch.testing.assert_close([one / 2 for one in mine], [one[4 * rank : 4 * rank + 4] for one in wanted])

"""Pair losses of a user's own. What they promise like all losses is in test_contracts.py."""

import copy
import inspect
import pickle
from functools import partial

import pytest
import torch
from torch import Tensor

import isosphere
import own_losses
from isosphere import functional
from isosphere.errors import BadArgument
from isosphere.losses import slopes
from isosphere.recipes import own
from isosphere.recipes.losses import OwnLoss
from isosphere.train.own import own_criterion

LABELS = torch.arange(24) % 7
SIMILARITY = {"alpha": 1.5, "beta": 20.0, "base": 0.3, "epsilon": 0.2}
MARGINS = {"positive_margin": 0.8, "negative_margin": 0.1}
BY_AUTOGRAD = isosphere.pair_loss(own_losses.contrastive_by_autograd)


def batch() -> Tensor:
    return torch.randn(24, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("block", [1, slopes.BLOCK], ids=["blocks", "whole"])
@pytest.mark.parametrize(
    ("mine", "built_in", "settings"),
    [
        (own_losses.multi_similarity, functional.multi_similarity, SIMILARITY),
        (own_losses.contrastive, functional.contrastive, MARGINS),
        (BY_AUTOGRAD, functional.contrastive, MARGINS),
    ],
    ids=["multi-similarity", "closed form", "autograd"],
)
def test_a_built_in_loss_written_anew_is_the_same(mine, built_in, settings, block, monkeypatch):
    monkeypatch.setattr(slopes, "BLOCK", block)
    for given in ({}, settings):
        f = batch()
        values = mine(f, LABELS, **given), mine(f, LABELS, *given.values()), built_in(f, LABELS, **given)
        by_name, by_place, wanted = ([value.detach(), *torch.autograd.grad(value, f)] for value in values)
        assert torch.equal(by_name[0], by_place[0]) and torch.equal(by_name[1], by_place[1])
        torch.testing.assert_close(by_name, wanted, rtol=1e-10, atol=1e-12)


def test_a_graph_is_made_only_where_gradients_are_wanted():
    seen = []

    @isosphere.pair_loss
    def loss(cosines: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        seen.append((cosines.requires_grad, torch.is_autocast_enabled("cpu"), positive.dtype, cosines.shape))
        return torch.where(positive, cosines, 0).sum(1)

    f = batch()
    with torch.inference_mode():
        value = loss(f, LABELS)
    with torch.no_grad():
        assert loss(f, LABELS) == value
    with torch.autocast("cpu"):
        assert loss(f, LABELS).requires_grad and not loss(f.detach(), LABELS).requires_grad
    assert seen == [(graph, False, torch.bool, (24, 24)) for graph in (False, False, True, False)]


def test_it_looks_and_is_copied_like_a_function():
    loss = own_losses.contrastive
    assert [*inspect.signature(loss).parameters] == ["embeddings", "labels", *MARGINS]
    assert (loss.__name__, loss.__doc__) == ("contrastive", "The same, with its slopes in closed form.")
    for copied in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
        assert copied is loss
    few = partial(loss, positive_margin=0.8)
    assert pickle.loads(pickle.dumps(few))(batch(), LABELS) == few(batch(), LABELS) != loss(batch(), LABELS)


def test_a_run_finds_it_by_its_path_and_knows_its_source():
    loss = own_losses.multi_similarity
    option = OwnLoss(**own.described(loss))
    assert (option.path, option.given) == ("own_losses:multi_similarity", "path")
    assert option.source and option.source != own.source_hash(own_losses.contrastive)
    for given in (loss, None):
        assert own_criterion(option, given, 6, 7)(batch(), LABELS) == loss(batch(), LABELS)


@pytest.mark.parametrize(
    ("found", "value"),
    [
        (lambda s: s.mean(), ()), (lambda s: s.sum(1, keepdim=True), (24, 1)), (lambda s: s, (24, 24)),
        (lambda s: None, type(None)), (lambda s: (s.sum(1), s), tuple), (lambda s: torch.zeros(len(s)), "a constant"),
    ],
    ids=["a mean", "a column", "pairs", "nothing", "slopes", "a constant"],
)  # fmt: skip
def test_what_is_not_a_loss_for_each_row_is_named(found, value):
    with pytest.raises(BadArgument) as error:
        isosphere.pair_loss(lambda cosines, positive, negative: found(cosines))(batch(), LABELS)
    assert (error.value.name, error.value.value) == ("the result of a pair loss", value)


@pytest.mark.parametrize(
    ("found", "value"),
    [
        (lambda s: s.sum(1), torch.Tensor), (lambda s: (s.sum(), s), ()), (lambda s: (s.sum(1), s[0]), (24,)),
        (lambda s: (s.sum(1), s, s), tuple),
    ],
    ids=["losses", "a sum", "a row", "three"],
)  # fmt: skip
def test_what_is_not_losses_and_slopes_is_named(found, value):
    with pytest.raises(BadArgument) as error:
        isosphere.pair_loss(slopes=True)(lambda cosines, positive, negative: found(cosines))(batch(), LABELS)
    assert (error.value.name, error.value.value) == ("the result of a pair loss", value)


@pytest.mark.parametrize("by_name", [False, True])
def test_settings_that_learn_are_refused(by_name):
    margin = torch.tensor(0.5, requires_grad=True)
    with pytest.raises(BadArgument) as error:
        BY_AUTOGRAD(batch(), LABELS, **{"negative_margin": margin}) if by_name else BY_AUTOGRAD(batch(), LABELS, margin)
    assert error.value.value == "a tensor that requires a gradient"
    constant = margin.detach()
    assert BY_AUTOGRAD(batch(), LABELS, constant) == BY_AUTOGRAD(batch(), LABELS, 0.5)


def test_only_functions_are_decorated():
    with pytest.raises(BadArgument) as error:
        isosphere.pair_loss(0.2)
    assert (error.value.name, error.value.value) == ("function", 0.2)

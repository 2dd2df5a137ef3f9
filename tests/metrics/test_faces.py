"""Verification and ROC against loops over lists, and against scikit-learn where definitions agree."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from isosphere.errors import BadArgument, NotFinite, OneKindOfPairs
from isosphere.metrics import faces


def pairs(seed, count=240, dim=8, folds=10, noise=0.9):
    """Pairs with overlapping scores: left, right (P, D), same (P,), fold (P,), in no order."""
    g = torch.Generator().manual_seed(seed)
    left = torch.randn(count, dim, generator=g)
    same = torch.rand(count, generator=g) < 0.5
    other = torch.randn(count, dim, generator=g)
    right = torch.where(same[:, None], left, other) + noise * torch.randn(count, dim, generator=g)
    return left, right, same, torch.randint(0, folds, (count,), generator=g)


def lfw(scores, same, fold):
    """LFW's protocol in loops: every cut between two training scores is tried, the strictest of the best is kept."""
    accuracies, thresholds = [], []
    for tested in sorted(set(fold)):
        train = [(s, y) for s, y, f in zip(scores, same, fold, strict=True) if f != tested]
        values = sorted({s for s, _ in train}, reverse=True)
        candidates = [2.0, *((a + b) / 2 for a, b in zip(values, values[1:], strict=False)), -2.0]
        best = max(candidates, key=lambda t: (sum((s >= t) == y for s, y in train), t))
        test = [(s, y) for s, y, f in zip(scores, same, fold, strict=True) if f == tested]
        accuracies.append(sum((s >= best) == y for s, y in test) / len(test))
        thresholds.append(best)
    return accuracies, thresholds


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000), count=st.integers(12, 80), folds=st.integers(2, 10), steps=st.sampled_from([2, 5, 0])
)
def test_verification_is_lfws_protocol(seed, count, folds, steps):
    left, right, same, fold = pairs(seed, count, folds=folds)
    # Both kinds in two folds at least, so that whichever is tested, the others can choose a threshold.
    same[:4], fold[:4] = torch.tensor([True, False, True, False]), torch.tensor([0, 0, folds, folds])
    if steps:  # few distinct scores: two dimensions on a lattice, so that ties are many
        left, right = (
            left[:, :2].sign() * (left[:, 2:4] * steps).round().abs().clamp(max=3, min=1) for left in (left, right)
        )
    cosines = faces.pair_cosines(left, right)
    unit = [v.double() / v.double().norm(dim=1, keepdim=True) for v in (left, right)]
    torch.testing.assert_close(cosines, (unit[0] * unit[1]).sum(1), rtol=0, atol=1e-6)
    accuracies, thresholds = lfw(cosines.tolist(), same.tolist(), fold.tolist())
    measured = faces.verification(left, right, same, fold)
    assert measured["accuracies"] == pytest.approx(accuracies)
    assert measured["thresholds"] == pytest.approx(thresholds, abs=1e-12)
    assert measured["accuracy"] == pytest.approx(np.mean(accuracies))
    assert measured["std"] == pytest.approx(np.std(accuracies))
    wrong, _ = faces.wrong_pairs(cosines, same, fold)
    judged = [
        (c >= thresholds[sorted(set(fold.tolist())).index(f)]) != y
        for c, y, f in zip(cosines.tolist(), same.tolist(), fold.tolist(), strict=True)
    ]
    assert wrong.tolist() == judged


def test_a_number_of_folds_deals_both_kinds_out_in_turn():
    left, right, same, _ = pairs(0)
    fold = torch.empty(len(same), dtype=torch.long)
    for kind in (same, ~same):
        fold[kind] = torch.arange(1, int(kind.sum()) + 1) % 10
    assert faces.verification(left, right, same) == faces.verification(left, right, same, fold)
    three = faces.verification(left, right, same.numpy()[::-1].copy()[::-1], 3)
    assert len(three["accuracies"]) == 3


def test_the_tested_fold_has_no_say_in_its_threshold():
    """Fold 0's pairs lie at other scores than the others': a threshold that saw them would judge them all rightly."""
    cosines = torch.tensor([0.9, 0.8, 0.7, 0.6] + 2 * [0.5, 0.4, 0.1, 0.0], dtype=torch.float64)
    same = torch.tensor([True, True, False, False] * 3)
    fold = torch.arange(3).repeat_interleave(4)
    wrong, thresholds = faces.wrong_pairs(cosines, same, fold)
    assert thresholds[0] == pytest.approx(0.25) and wrong[:4].tolist() == [False, False, True, True]
    for labels in ([True] * 4, [False] * 4, [False, False, True, True]):  # whatever the tested fold holds
        changed = torch.cat([torch.tensor(labels), same[4:]])
        assert faces.wrong_pairs(torch.cat([-cosines[:4], cosines[4:]]), changed, fold)[1][0] == thresholds[0]


def test_degenerate_thresholds():
    assert faces.best_threshold(torch.ones(4), torch.tensor([True, True, False, False])) == 2.0  # a tie: the strictest
    assert faces.best_threshold(torch.ones(3), torch.tensor([True, True, False])) == -2.0
    close = torch.tensor([1.0, np.nextafter(1.0, 0.0)], dtype=torch.float64)
    assert faces.best_threshold(close, torch.tensor([True, False])) == 1.0  # the middle would round to the impostor
    collapsed = torch.ones(20, 3)
    same = torch.arange(20) % 2 == 0
    assert faces.verification(collapsed, collapsed, same, torch.arange(20) // 2)["accuracy"] == 0.5


@pytest.mark.parametrize("digits", [1, 2, 12])
def test_roc_auc_and_tar_agree_with_scikit_learn(digits):
    left, right, same, _ = pairs(1, 600)
    scores = torch.round(faces.pair_cosines(left, right), decimals=digits)
    false, true, thresholds = faces.roc(scores, same)
    expected = roc_curve(same.numpy(), scores.numpy(), drop_intermediate=False)
    for ours, theirs in zip((false, true, thresholds), expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-12)
    assert faces.auc(scores, same) == pytest.approx(roc_auc_score(same.numpy(), scores.numpy()), abs=1e-12)
    impostors, genuine = scores[~same].tolist(), scores[same].tolist()
    fars = (10 / len(impostors), 0.1, 0.5, 1.0)
    for far, tar in faces.tar_at_far(scores, same, fars).items():
        allowed = [
            t for t in [*set(scores.tolist()), 2.0] if sum(s >= t for s in impostors) <= far * len(impostors) + 1e-6
        ]
        assert tar == pytest.approx(sum(s >= min(allowed) for s in genuine) / len(genuine))
    corners = np.stack(expected[:2], 1)  # walk along the polygon of ROC points in small steps
    walk = np.concatenate([np.linspace(a, b, 2001) for a, b in zip(corners, corners[1:], strict=False)])
    nearest = np.abs(walk[:, 0] - (1 - walk[:, 1])).argmin()
    assert faces.equal_error_rate(scores, same) == pytest.approx(walk[nearest, 0], abs=1e-3)


def test_equal_error_rate_by_hand():
    same = torch.tensor([True, True, False, True, False, False])
    assert faces.equal_error_rate(torch.tensor([6.0, 5, 4, 3, 2, 1]), same) == pytest.approx(1 / 3)
    assert faces.equal_error_rate(torch.tensor([6.0, 5, 1, 4, 2, 3]), same) == 0
    assert faces.equal_error_rate(torch.ones(6), same) == pytest.approx(0.5)
    assert faces.equal_error_rate(-torch.tensor([6.0, 5, 1, 4, 2, 3]), same) == 1


def test_a_rate_that_too_few_impostors_decide_is_refused():
    scores, same = torch.arange(2000.0), torch.arange(2000) % 2 == 0
    assert faces.tar_at_far(scores, same, (0.01,))  # 10 of 1000
    for one in (0.2, 1, np.float32(0.2)):
        assert faces.tar_at_far(scores, same, one) == faces.tar_at_far(scores, same, [one])
    for far in (0.0099, 1e-6, 0.0, -0.1, 1.5):
        with pytest.raises(BadArgument) as error:
            faces.tar_at_far(scores, same, (0.1, far))
        assert (error.value.name, error.value.value) == ("fars", far)


def test_cosines_of_tiny_embeddings():
    left, right, _, _ = pairs(0)
    torch.testing.assert_close(faces.pair_cosines(left * 2.0**-100, right), faces.pair_cosines(left, right))


def test_the_mirror_image_is_averaged_in():
    images = torch.rand(3, 3, 4, 4)
    weights = torch.randn(48, 5)
    embed = lambda pixels: pixels.flatten(1) @ weights  # noqa: E731
    both = [(embed(image[None])[0], embed(image[None, :, :, [3, 2, 1, 0]])[0]) for image in images]
    found = faces.mirror_averaged(embed, images)
    means = torch.stack([(one + two) / 2 for one, two in both])
    torch.testing.assert_close(torch.cosine_similarity(found, means), torch.ones(3))
    # The norm is not that of the mean, which is shorter where the two views disagree.
    lengths = torch.stack([(one.norm() + two.norm()) / 2 for one, two in both])
    torch.testing.assert_close(found.norm(dim=1), lengths)
    assert (lengths > 1.01 * means.norm(dim=1)).any()


def test_norms_that_predict_errors():
    g = torch.Generator().manual_seed(0)
    norms = torch.randn(103, generator=g).exp()
    wrong = torch.rand(103, generator=g) < 0.4 / norms
    measured = faces.norm_and_errors(norms, wrong)
    lower = [(a < b) + 0.5 * (a == b) for a in norms[wrong].tolist() for b in norms[~wrong].tolist()]
    assert measured["auroc"] == pytest.approx(np.mean(lower)) and measured["auroc"] > 0.6
    groups = np.array_split(norms.argsort().numpy(), 10)
    assert measured["error_rates"] == pytest.approx([float(wrong[group].double().mean()) for group in groups])
    assert measured["mean_norms"] == pytest.approx([float(norms[group].double().mean()) for group in groups])
    flat = faces.norm_and_errors(torch.ones(103), wrong)
    assert flat["auroc"] == 0.5 and flat["error_rates"] == pytest.approx([float(wrong.double().mean())] * 10)
    assert faces.norm_and_errors(norms, torch.zeros(103, dtype=torch.bool))["auroc"] is None


@pytest.mark.parametrize(
    ("kind", "name", "call"),
    [
        (BadArgument, "fold", lambda: faces.verification(*pairs(0)[:3], torch.zeros(240).long())),
        (OneKindOfPairs, "same", lambda: faces.verification(*pairs(0)[:2], torch.ones(240).bool(), pairs(0)[3])),
        (OneKindOfPairs, "same", lambda: faces.auc(torch.rand(3), torch.zeros(3))),
        (BadArgument, "same", lambda: faces.auc(torch.rand(3), torch.tensor([-1, 1, 1]))),
        (BadArgument, "fold", lambda: faces.verification(*pairs(0)[:3], None)),
        (
            BadArgument,
            "fold",
            lambda: faces.verification(torch.rand(4, 2), torch.rand(4, 2), [1, 1, 0, 0], [0, 0, 1, 1]),
        ),
        (BadArgument, "scores and same", lambda: faces.auc(torch.rand(3), torch.zeros(4))),
        (NotFinite, "scores", lambda: faces.auc(torch.tensor([0.0, float("nan")]), torch.tensor([0, 1]))),
        (BadArgument, "right", lambda: faces.pair_cosines(torch.rand(3, 2), torch.rand(3, 4))),
        (BadArgument, "norms and wrong", lambda: faces.norm_and_errors(torch.rand(12), torch.zeros(11))),
    ],
)
def test_bad_input_is_named(kind, name, call):
    with pytest.raises(kind) as error:
        call()
    assert error.value.name == name

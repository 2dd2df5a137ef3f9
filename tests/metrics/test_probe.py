"""The probe against torch's own SGD and scikit-learn's logistic regression; k-NN against loops and scikit-learn."""

import inspect
import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch.utils._python_dispatch import TorchDispatchMode

from isosphere.errors import BadArgument, NotFinite
from isosphere.metrics import knn_accuracy, linear_probe, neighbors, probe


def blobs(n=300, m=120, d=12, classes=8, noise=2.0, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    centers, labels = torch.randn(classes, d, generator=g), torch.arange(n + m) % classes
    features = (centers[labels] + noise * torch.randn(n + m, d, generator=g)).to(dtype)
    return features[:n], labels[:n], features[n:], labels[n:]


def by_torch(train, labels, test, truth, lr, epochs, batch, milestones=(), momentum=0.9, weight_decay=0.0, seed=0):
    """nn.Linear, CrossEntropyLoss, SGD and MultiStepLR; the weights, the biases and (top-1, top-5) of each epoch."""
    model = torch.nn.Linear(train.shape[1], int(labels.max()) + 1, dtype=train.dtype)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=momentum, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(milestones), gamma=0.2)
    history = []
    for epoch in range(epochs):
        for rows in torch.from_numpy(probe._shuffled(len(train), seed, epoch)).split(batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(train[rows]), labels[rows]).backward()
            optimizer.step()
        schedule.step()
        hits = model(test).topk(5).indices == truth[:, None]
        history.append((float(hits[:, 0].double().mean()), float(hits.any(1).double().mean())))
    return model.weight.detach(), model.bias.detach(), history


@pytest.fixture
def classifiers(monkeypatch):
    """The classifiers that the probes of a test have trained."""
    made, plain = [], probe._Classifiers
    monkeypatch.setattr(probe, "_Classifiers", lambda *given: made.append(plain(*given)) or made[-1])
    return made


@pytest.mark.parametrize(
    "options",
    [
        dict(epochs=12, batch=64, milestones=(4, 7, 10)),  # 300 = 4 * 64 + 44: the last batch is incomplete
        dict(epochs=5, batch=100, milestones=(), momentum=0.5, weight_decay=0.01, seed=7),
        dict(epochs=3, batch=1000, momentum=0.0, milestones=(1,)),
    ],
)
def test_several_rates_at_once_are_torchs_sgd_with_each(options, classifiers):
    data, lrs = blobs(), (0.5, 0.02, 0.1)
    measured = linear_probe(*data, lrs, **options)
    weights, biases = classifiers[0].weight.view(3, 8, 12), classifiers[0].bias.view(3, 8)
    assert list(measured) == list(lrs)
    for lr, weight, bias in zip(lrs, weights, biases, strict=True):
        expected_weight, expected_bias, history = by_torch(*data, lr, **options)
        torch.testing.assert_close(weight, expected_weight, rtol=0, atol=1e-9)
        torch.testing.assert_close(bias, expected_bias, rtol=0, atol=1e-9)
        best = max(range(len(history)), key=lambda epoch: history[epoch][0])
        assert measured[lr] == pytest.approx(
            dict(top1=history[-1][0], top5=history[-1][1], best_top1=history[best][0], best_top5=history[best][1])
            | dict(best_epoch=best + 1, diverged=None)
        )


def test_the_defaults_are_those_of_appendix_b3(classifiers):
    data = [0.1 * part if part.is_floating_point() else part for part in blobs()]  # small, so that lr 5 is stable
    (found,) = linear_probe(*data).values()
    weight, _, history = by_torch(*data, lr=5.0, epochs=100, batch=256, milestones=(60, 75, 90), momentum=0.9)
    torch.testing.assert_close(classifiers[0].weight, weight, rtol=0, atol=1e-9)
    assert (found["top1"], found["top5"]) == pytest.approx(history[-1])
    assert inspect.signature(knn_accuracy).parameters["k"].default == 200
    assert inspect.signature(knn_accuracy).parameters["temperature"].default == 0.1


def test_best_and_last_differ_and_follow_the_seed():
    data = blobs(noise=3.0)
    first, again, other = (linear_probe(*data, (2.0,), 15, 32, seed=seed)[2.0] for seed in (0, 0, 1))
    assert first == again != other
    assert first["best_epoch"] < 15 and first["best_top1"] > first["top1"]


def test_every_epoch_has_an_order_of_its_own():
    orders = [probe._shuffled(50, seed, epoch).tolist() for seed in (0, 1) for epoch in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len(set(map(tuple, orders))) == 6


def test_the_milestones_lower_the_rate(classifiers):
    linear_probe(*blobs(), (5.0,), epochs=4, milestones=(1, 3), factor=0.1)
    assert classifiers[0].rates.tolist() == pytest.approx([5.0 * 0.01] * 8)
    linear_probe(*blobs(), (5.0,), epochs=3, milestones=(1, 3), factor=0.1)
    assert classifiers[1].rates.tolist() == pytest.approx([5.0 * 0.1] * 8)


def test_the_optimum_is_scikit_learns(classifiers):
    train, labels, test, truth = data = blobs()
    result = linear_probe(*data, (0.1,), epochs=400, batch=300, milestones=(), weight_decay=0.01)[0.1]
    # The bias is decayed as the weights are: for scikit-learn it is the weight of a constant feature.
    widened = [np.concatenate([part.numpy(), np.ones((len(part), 1))], 1) for part in (train, test)]
    theirs = LogisticRegression(C=1 / (0.01 * 300), fit_intercept=False, tol=1e-10, max_iter=1000)
    theirs.fit(widened[0], labels.numpy())
    ours = torch.cat([classifiers[0].weight, classifiers[0].bias[:, None]], 1).numpy()
    np.testing.assert_allclose(ours, theirs.coef_, atol=1e-5)
    assert result["top1"] == pytest.approx(theirs.score(widened[1], truth.numpy()))


def test_separable_data_are_separated():
    train, labels, test, truth = data = blobs(d=32, noise=0.3, dtype=torch.float32)
    theirs = LogisticRegression(C=1e4, max_iter=1000).fit(train.numpy(), labels.numpy())
    assert theirs.score(test.numpy(), truth.numpy()) == 1.0
    heard = []
    assert linear_probe(*data, progress=lambda *shares: heard.append(shares))[5.0]["top1"] == 1.0
    assert heard == [(done, 100) for done in range(1, 101)]


def test_labels_may_be_any_integers_and_features_half_and_autocast():
    train, labels, test, truth = blobs(noise=0.8, dtype=torch.float32)
    expected = linear_probe(train.bfloat16().float(), labels, test.bfloat16().float(), truth, (0.5,), epochs=3)
    names = torch.tensor([3, 7, 8, 20, 21, 22, 40, 1000])
    with torch.autocast("cpu", torch.bfloat16):
        halves = linear_probe(train.bfloat16(), names[labels], test.bfloat16(), names[truth], (0.5,), epochs=3)
    assert halves == expected


def test_a_diverged_rate_is_reported_and_leaves_the_others_alone():
    data = blobs(dtype=torch.float32)
    alone = linear_probe(*data, (0.1,), epochs=4)
    result = linear_probe(*data, (3e38, 0.1), epochs=4)
    assert result[0.1] == alone[0.1]
    assert result[3e38] == dict.fromkeys(("top1", "top5", "best_top1", "best_top5", "best_epoch")) | {"diverged": 1}
    late = linear_probe(*data, (20.0, 0.01), epochs=20, weight_decay=10.0)  # |1 - lr * decay| = 199 a step
    assert late[20.0]["diverged"] > 1 and late[0.01]["diverged"] is None
    with pytest.raises(BadArgument) as error:
        linear_probe(*data, (3e38, 2e38), epochs=4)
    assert error.value.value == [3e38, 2e38]


def test_ties_and_what_is_no_number_count_as_wrong():
    nothing, one = math.nan, torch.tensor([2])
    for row, expected in [
        ([0.0] * 6, [0, 0]),
        ([nothing] * 6, [0, 0]),
        ([1, 1, nothing, 1, 1, 1], [0, 0]),
        ([0, 3, 3, 0, 0, 0], [0, 1]),
        ([4, 3, 3, 4, 4, 4], [0, 0]),
        ([4, 2, 3, 4, 4, 4], [0, 1]),
        ([0, 2, 3, 1, 1, 1], [1, 1]),
    ]:
        assert probe._right(torch.tensor([[row]], dtype=torch.float64), one).tolist() == [expected]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("options", [dict(epochs=1), dict(epochs=6, batch=64, milestones=(2, 4), weight_decay=0.01)])
def test_a_captured_epoch_is_the_eager_one(options, classifiers):
    data, lrs = blobs(), (0.5, 0.02, 0.1)
    eager = linear_probe(*data, lrs, **options)
    captured = linear_probe(*(part.cuda() for part in data), lrs, **options)
    torch.testing.assert_close(classifiers[1].weight.cpu(), classifiers[0].weight, rtol=0, atol=1e-9)
    assert captured == eager


def by_loops(train, labels, test, truth, k, temperature, slack):
    """The vote image by image: sorted neighbors, ties for the last places share them; ties of votes within slack."""
    right = [0, 0]
    for query, label in zip(test.double(), truth.tolist(), strict=True):
        near = []
        for reference, name in zip(train.double(), labels.tolist(), strict=True):
            lengths = float(query.norm() * reference.norm())
            near.append((round(float(query @ reference) / lengths, 9) if lengths > 0 else 0.0, name))
        near.sort(key=lambda pair: -pair[0])
        last = near[k - 1][0]
        closer, tied = [p for p in near if p[0] > last], [p for p in near if p[0] == last]
        votes = dict.fromkeys(labels.tolist(), 0.0)
        for cosine, name in closer + tied:
            votes[name] += math.exp(cosine / temperature) * (1 if cosine > last else (k - len(closer)) / len(tied))
        ahead = sum(vote >= votes[label] - slack for name, vote in votes.items() if name != label)
        right = [right[0] + (ahead < 1), right[1] + (ahead < 5)]
    return {"top1": right[0] / len(test), "top5": right[1] / len(test)}


@pytest.mark.parametrize("k, temperature", [(1, 0.1), (7, 0.1), (40, 0.5), (90, 0.07)])
def test_knn_is_the_loop_and_scikit_learns(k, temperature, monkeypatch):
    monkeypatch.setattr(probe, "block_rows", lambda *_: 13)
    train, labels, test, truth = data = blobs(n=90, m=50)
    weigh = lambda distances: np.exp((1 - distances) / temperature)  # noqa: E731
    theirs = KNeighborsClassifier(k, metric="cosine", algorithm="brute", weights=weigh)
    shares = torch.from_numpy(theirs.fit(train.numpy(), labels.numpy()).predict_proba(test.numpy()))
    measured = knn_accuracy(*data, k, temperature)
    assert measured == by_loops(*data, k, temperature, slack=0)
    assert measured["top1"] == pytest.approx(theirs.score(test.numpy(), truth.numpy()))
    if k >= 40:  # with fewer neighbors many classes have no vote, which scikit-learn puts in any order
        hits = (shares.topk(5).indices == truth[:, None]).any(1)
        assert measured["top5"] == pytest.approx(float(hits.double().mean()))


@pytest.mark.parametrize("seed", range(12))
def test_equally_near_images_share_the_last_places(seed):
    g = torch.Generator().manual_seed(seed)
    # Zero, axes and a diagonal at several lengths: the cosines are exact, so every tie is a tie.
    axes = torch.cat([torch.zeros(1, 4), torch.eye(4), -torch.eye(4), torch.full((1, 4), 0.5)]).double()
    chosen, lengths = torch.randint(10, (70,), generator=g), 2.0 ** torch.randint(-3, 4, (70, 1), generator=g)
    train, test = (axes[chosen] * lengths).split([40, 30])
    labels, truth = torch.arange(40) % 7, torch.randint(7, (30,), generator=g)
    for k in (1, 4, 15, 40):
        measured = knn_accuracy(train, labels, test, truth, k, temperature=1.0)
        low, high = (by_loops(train, labels, test, truth, k, 1.0, slack) for slack in (1e-6, -1e-6))
        for name in measured:  # rounding may decide between equal votes
            assert low[name] <= measured[name] <= high[name]


def test_ten_that_share_one_place_weigh_as_one():
    train = torch.tensor([[1.0, 1.0]] + [[0.0, 1.0]] * 10)  # cosines of 0.71 and ten times 0
    labels, query = torch.tensor([0] + [1] * 10), (torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert knn_accuracy(train, labels, *query, k=2, temperature=1.0)["top1"] == 1.0  # 2.03 against 1
    assert knn_accuracy(train, labels, *query, k=4, temperature=1.0)["top1"] == 0.0  # 2.03 against 3


def test_a_collapsed_model_votes_for_the_largest_class():
    features, labels = torch.ones(30, 4), torch.tensor([0] * 10 + [1] * 11 + [2] * 9)
    truth = torch.tensor([0, 1, 2, 1])
    for order in (slice(None), torch.randperm(30, generator=torch.Generator().manual_seed(0))):
        assert knn_accuracy(features, labels[order], torch.ones(4, 4), truth, k=5)["top1"] == 0.5
    assert knn_accuracy(features, torch.arange(30) % 3, torch.ones(4, 4), truth, k=5)["top1"] == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_scaled_copies_of_one_direction_vote_alike(dtype):
    labels = torch.arange(700) % 7
    for seed in range(4):
        g = torch.Generator().manual_seed(seed)
        rows = (torch.randn(128, generator=g) * 10 ** (6 * torch.rand(707, 1, generator=g) - 3)).to(dtype)
        assert knn_accuracy(rows[:700], labels, rows[700:], labels[:7], k=50)["top1"] == 0


def test_equal_features_vote_alike_wherever_blas_rounds_their_columns_differently():
    labels = torch.arange(1001) % 7
    for seed in range(4):
        one = torch.randn(1, 128, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert knn_accuracy(one.repeat(1001, 1), labels, one.repeat(7, 1), labels[:7])["top1"] == 0


def test_knn_withstands_a_small_temperature_and_holds_no_more_than_a_block(monkeypatch):
    data = blobs(noise=1.0, dtype=torch.float32)
    assert knn_accuracy(*data, k=20, temperature=1e-4)["top1"] == knn_accuracy(*data, k=1)["top1"]
    monkeypatch.setattr(neighbors, "BLOCK_BYTES", {"cpu": 10 * 300 * 4 * 10})
    sizes, plain = [], probe.sphere.products
    monkeypatch.setattr(probe.sphere, "products", lambda a, b: sizes.append(len(a)) or plain(a, b))
    knn_accuracy(*data, k=20)
    assert set(sizes) == {10}


class Largest(TorchDispatchMode):
    """The most numbers that a tensor made meanwhile holds."""

    numbers = 0

    def __torch_dispatch__(self, function, types, given=(), named=None):
        made = function(*given, **(named or {}))
        for one in made if isinstance(made, tuple | list) else (made,):
            self.numbers = max(self.numbers, one.numel() if isinstance(one, torch.Tensor) else 0)
        return made


def test_many_classes_take_no_more_memory(monkeypatch):
    """A row for each training image and a column for each class would be 250,000 numbers, classes squared as many."""
    monkeypatch.setattr(neighbors, "BLOCK_BYTES", {"cpu": 10 * 500 * 4 * 20})
    generator = torch.Generator().manual_seed(0)
    train, test = (torch.randn(size, 4, generator=generator) for size in (500, 60))
    with Largest() as knn:
        knn_accuracy(train, torch.arange(500), test, torch.arange(60), k=5)
    with Largest() as linear:
        linear_probe(train, torch.arange(500), test, torch.arange(60), lrs=(1.0,), epochs=1, batch=20)
    assert knn.numbers == 20 * 500 and linear.numbers <= 60 * 500


def test_labels_may_be_words():
    train, labels, test, truth = blobs()
    words = np.array(list("hgfedcba"))
    named = knn_accuracy(train, words[labels], test * 2.0**-600, words[truth].tolist(), k=9)
    assert named == knn_accuracy(train, labels, test, truth, k=9) and 0.2 < named["top1"] < 1


@pytest.mark.parametrize(
    "change, options, name, value",
    [
        ({}, dict(k=301), "k", 301),
        ({}, dict(k=0), "k", 0),
        ({}, dict(k=5.0), "k", 5.0),
        ({}, dict(temperature=0.0), "temperature", 0.0),
        ({}, dict(temperature=math.inf), "temperature", math.inf),
        ({}, dict(lrs=()), "lrs", []),
        ({}, dict(lrs=-1.0), "lrs", [-1.0]),
        ({}, dict(lrs=(1.0, math.inf)), "lrs", [1.0, math.inf]),
        ({}, dict(epochs=0), "epochs and batch", (0, 256)),
        ({0: torch.ones(300, 11)}, {}, "test_features", (120, 12)),
        ({1: torch.zeros(299, dtype=torch.int64)}, {}, "train_labels", (299,)),
        ({1: ["a"] * 300, 3: ["a"] * 119 + ["b"]}, {}, "test_labels", "b"),
        ({3: torch.full((120,), 8)}, {}, "test_labels", 8),
    ],
)
def test_errors_name_the_culprit(change, options, name, value):
    data = [change.get(place, part) for place, part in enumerate(blobs())]
    measures = (knn_accuracy, linear_probe)  # what is wrong with the data is wrong for both
    for measure in measures if change else measures[:1] if {"k", "temperature"} & set(options) else measures[1:]:
        with pytest.raises(BadArgument) as error:
            measure(*data, **options)
        assert (error.value.name, error.value.value) == (name, value)


@pytest.mark.parametrize("measure", [knn_accuracy, linear_probe])
def test_features_that_are_not_finite_are_named(measure):
    train, labels, test, truth = blobs()
    with pytest.raises(NotFinite) as error:
        measure(train, labels, test * math.nan, truth)
    assert (error.value.name, error.value.row, error.value.rows) == ("test_features", 0, 120)

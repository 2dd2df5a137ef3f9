"""Metrics on a device without float64, as Apple's is: the CPU with float64 forbidden."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import isosphere
from isosphere.metrics import faces, neighbors


class NoFloat64(TorchDispatchMode):
    """Refuses what makes a float64, but for random numbers, which are drawn on the CPU and sent."""

    def __torch_dispatch__(self, function, types, given=(), named=None):
        made = function(*given, **(named or {}))
        for one in made if isinstance(made, tuple | list) else (made,):
            wide = isinstance(one, torch.Tensor) and one.dtype == torch.float64
            assert not wide or function.__name__.startswith(("rand", "select", "unbind")), function
        return made


def measured() -> dict[str, dict[str, float]]:
    """One number at least of every metric."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 6
    points = torch.randn(6, 8, generator=generator)[labels] + torch.randn(2, 60, 8, generator=generator)
    same, scores = labels % 2 == 0, torch.rand(60, generator=generator)
    train, test = (points[0], labels), (points[1], labels)
    norms = points[0].norm(dim=1)
    probe = isosphere.linear_probe(*train, *test, (0.1,), epochs=3)[0.1]
    return {
        "retrieval": isosphere.retrieval_metrics(*train),
        "clustering": isosphere.clustering_metrics(*train),
        "knn": isosphere.knn_accuracy(*train, *test, k=9),
        "probe": {name: value for name, value in probe.items() if value is not None},
        "verification": {"accuracy": isosphere.metrics.verification(points[0], points[1], same, 5)["accuracy"]},
        "roc": {"auc": faces.auc(scores, same), "eer": faces.equal_error_rate(scores, same)},
        "tar": {str(far): rate for far, rate in faces.tar_at_far(scores, same, (0.5,)).items()},
        "errors": {"auroc": faces.norm_and_errors(norms, same)["auroc"]},
        "identification": isosphere.metrics.identification(points[0][:20], labels[:20], points[1], 60),
    }


class WithoutFloat64(TorchDispatchMode):
    """Makes no float64, and raises what such a device raises."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error, self.asked = error, 0

    def __torch_dispatch__(self, function, types, given=(), named=None):
        if (named or {}).get("dtype") == torch.float64:
            self.asked += 1
            raise self.error
        return function(*given, **(named or {}))


@pytest.fixture
def forgetful():
    """What was found out about devices is forgotten, before and after."""
    neighbors._has_float64.cache_clear()
    yield
    neighbors._has_float64.cache_clear()


@pytest.mark.parametrize("error", [TypeError, RuntimeError])
def test_a_device_is_asked_once_whether_it_has_float64(error, forgetful):
    with WithoutFloat64(error) as device:
        assert [neighbors.widest_type(torch.device("cpu")) for _ in range(3)] == [torch.float32] * 3
    assert device.asked == 1


def test_a_device_that_is_full_is_asked_again(forgetful):
    with WithoutFloat64(torch.OutOfMemoryError), pytest.raises(torch.OutOfMemoryError):
        neighbors.widest_type(torch.device("cpu"))
    assert neighbors.widest_type(torch.device("cpu")) == torch.float64


def test_every_metric_needs_no_float64(monkeypatch):
    wanted = measured()
    monkeypatch.setattr(neighbors, "_has_float64", lambda kind: False)
    with pytest.raises(AssertionError), NoFloat64():
        torch.ones(1).double()
    with NoFloat64():
        found = measured()
    for part, numbers in wanted.items():
        # another precision may seed k-means differently
        assert found[part] == pytest.approx(numbers, abs=0.1 if part == "clustering" else 1e-5), part

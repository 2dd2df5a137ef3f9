"""Trained models without training: random weights, and batch norm with statistics of its own."""

from collections.abc import Callable

import pytest
import torch

from isosphere.inference import Trained, build_model
from isosphere.recipes import schema


@pytest.fixture(scope="session")
def made() -> Callable[..., Trained]:
    """A model of this recipe's parts, as if it were trained."""

    def make(data: schema.Data, model: schema.Networks, given: object = None) -> Trained:
        torch.manual_seed(0)
        network = build_model(model, data.shape, given).eval()
        for name, value in network.named_buffers():
            if name.endswith("running_mean"):
                value.normal_(0, 0.1)
            elif name.endswith("running_var"):
                value.uniform_(0.5, 1.5)
        return Trained(schema.Recipe(data=data, model=model), network, torch.device("cpu"), [], 7)

    return make

"""Norms, and what they do to directions, watched in a plain PyTorch loop: two lines more than without it."""

import json
from pathlib import Path

import torch

import isosphere

torch.manual_seed(0)
centers = torch.randn(20, 32)
probe = centers + torch.randn(20, 32)  # the same points, looked at again and again
for eta in (0.0, 0.5):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    criterion, sec = isosphere.MultiSimilarityLoss(), isosphere.SEC(eta)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    file = Path(f"norms-eta{eta:g}.jsonl")
    monitor = isosphere.NormMonitor(optimizer, file=file, every=50, constrained=eta > 0)  # <- one

    for step in range(301):
        labels = torch.randint(20, (120,))
        embeddings = model(centers[labels] + torch.randn(120, 32))
        monitor(embeddings)  # <- two: between the forward and the backward pass
        loss = criterion(embeddings, labels) + sec(embeddings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            with torch.no_grad():  # in eval mode, too, where that makes a difference
                monitor.probe(model(probe), step)  # how far did each of them turn? not needed for the rest

    monitor.close()
    last = {record["kind"]: record for record in map(json.loads, file.read_text().splitlines())}
    train, turn = last["train"], last["probe"]
    print(f"eta {eta:g}: norms {train['norm_mean']:.2f} with coefficient of variation {train['norm_cv']:.3f}")
    print(f"  radial share of the gradient {train['radial_share']:.2%}, lr of a direction {train['lr_proxy_mean']:.2g}")
    print(f"  100 steps turned {turn['turn_mean']:.3f}, by |f|^{turn['turn_slope']:.2f}±{turn['turn_slope_error']:.2f}")

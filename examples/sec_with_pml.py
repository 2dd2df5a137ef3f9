"""SEC beside a loss of pytorch-metric-learning (pip install pytorch-metric-learning): it needs only raw embeddings."""

import torch
from pytorch_metric_learning.losses import CircleLoss

import isosphere

torch.manual_seed(0)
centers = torch.randn(20, 32)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
criterion = CircleLoss()
sec = isosphere.SEC(eta=5.0, relative=True)  # relative: eta does not depend on how long the embeddings are
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(201):
    labels = torch.randint(20, (120,))
    embeddings = model(centers[labels] + torch.randn(120, 32))
    loss = criterion(embeddings, labels) + sec(embeddings)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        norms = isosphere.sphere.norms(embeddings.detach())
        print(f"step {step:3}  loss {loss:.3f}  coefficient of variation of the norms {norms.std() / norms.mean():.3f}")

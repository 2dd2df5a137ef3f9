"""SEC in a plain PyTorch loop: two lines more than without it."""

import torch

import isosphere

torch.manual_seed(0)
centers = torch.randn(20, 32)  # twenty classes of points instead of images, so that this runs in seconds
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
criterion = isosphere.MultiSimilarityLoss()
sec = isosphere.SEC(eta=0.5)  # <- one
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(201):
    labels = torch.randint(20, (120,))
    embeddings = model(centers[labels] + torch.randn(120, 32))  # raw: the criterion normalizes by itself
    loss = criterion(embeddings, labels) + sec(embeddings)  # <- two
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        norms = isosphere.sphere.norms(embeddings.detach())
        recall = isosphere.recall_at_k(embeddings.detach(), labels, ks=(1,))[1]
        print(f"step {step:3}  R@1 {recall:.1%}  norms {norms.mean():.2f} with variance {norms.var():.4f}")

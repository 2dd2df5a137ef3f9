"""Norms watched in PyTorch Lightning (pip install 'isosphere[lightning]'): one callback, named after the submodule."""

import json
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import isosphere
from isosphere.adapters.lightning import lightning_callback


class Learner(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.embedder = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
        self.criterion, self.sec = isosphere.MultiSimilarityLoss(), isosphere.SEC(eta=0.5)

    def training_step(self, batch, index):
        points, labels = batch
        embeddings = self.embedder(points)
        return self.criterion(embeddings, labels) + self.sec(embeddings)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


torch.manual_seed(0)
labels = torch.randint(20, (6000,))
points = torch.randn(20, 32)[labels] + torch.randn(6000, 32)
monitor = lightning_callback("embedder", file="lightning_norms.jsonl", every=10, constrained=True)  # <- here
trainer = lightning.Trainer(max_epochs=2, callbacks=[monitor], accelerator="cpu", logger=False)
trainer.fit(Learner(), DataLoader(TensorDataset(points, labels), batch_size=120))
records = [json.loads(line) for line in Path("lightning_norms.jsonl").read_text().splitlines()]
for record in [record for record in records if record["kind"] == "train"][::20]:
    print(f"step {record['step']}: norms {record['norm_mean']:.2f}, coefficient of variation {record['norm_cv']:.3f}")

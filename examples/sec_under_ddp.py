"""SEC under DistributedDataParallel: torchrun --nproc-per-node 2 examples/sec_under_ddp.py

`gather` gives every process the whole batch, differentiably; SEC takes its radius over all processes by itself.
Together with DDP's averaging, where batches have one size, the gradients are those of one process on the whole batch.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import isosphere


def train() -> None:
    torch.manual_seed(0)
    centers = torch.randn(20, 32)
    layers = torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    criterion, sec = isosphere.TripletLoss(), isosphere.SEC(eta=0.5, radius="ema")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + dist.get_rank())  # every process draws samples of its own

    for step in range(101):
        labels = torch.randint(20, (60,))
        embeddings = model(centers[labels] + torch.randn(60, 32))
        loss = criterion(*isosphere.gather(embeddings, labels)) + sec(embeddings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 and dist.get_rank() == 0:
            print(f"step {step:3}  loss {loss:.3f}  radius {sec.running_radius:.3f}")


dist.init_process_group("gloo")  # "nccl" on GPUs
train()
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # DDP leaves gloo's threads behind, which now and then abort an interpreter that ends; NCCL does not

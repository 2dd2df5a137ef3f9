"""What the distributed tests run in every process: importable, so that spawned processes find it."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import isosphere
import own_losses
from isosphere.errors import Held, UnequalRanks
from isosphere.inference import embed
from isosphere.losses.log_norms import LogNorms
from isosphere.recipes import schema
from isosphere.train.folder import claimed, held
from isosphere.train.loop import prepare, train_step, training_feed
from isosphere.train.own import OwnCriterion
from tiny import tiny_recipe


def on_ranks(world: int, function: Any, *arguments: Any) -> list[Any]:
    """function(*arguments) in `world` gloo processes; its results in the order of ranks."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_enter, (world, folder, function, arguments), nprocs=world)
        return [torch.load(Path(folder, f"{rank}.pt"), weights_only=False) for rank in range(world)]


def _enter(rank: int, world: int, folder: str, function: Any, arguments: tuple) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    torch.save(function(*arguments), Path(folder, f"{rank}.pt"))
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads may abort a process whose interpreter ends, as in cli.main


def our_loop(recipes: list[schema.Recipe]) -> list[dict[str, Any]]:
    """For each recipe: losses of all steps, gradients of the first, weights and radius after the last."""
    traces = []
    for recipe in recipes:
        run = prepare(recipe, torch.device("cpu"))
        losses, first = [], {}
        run.network.train()
        for batch in training_feed(run):
            losses.append(float(train_step(run, batch.images, batch.labels)["loss"]))
            run.step += 1
            if not first:
                first = {name: value.grad.clone() for name, value in _parameters(run.model, run.criterion)}
        traces.append(
            {
                "losses": losses,
                "gradients": first,
                "weights": {name: value.detach() for name, value in _parameters(run.model, run.criterion)},
                "statistics": dict(run.model.named_buffers()),
                "constraint": {} if run.constraint is None else run.constraint.state_dict(),
            }
        )
    return traces


PLAIN_LOOPS = {
    "triplet": lambda: isosphere.TripletLoss(),
    "semi-hard": lambda: isosphere.SemiHardTripletLoss(),
    "n-pair": lambda: isosphere.NPairLoss(),
    "multi-similarity": lambda: isosphere.MultiSimilarityLoss(),
    "contrastive": lambda: isosphere.ContrastiveLoss(),
    "supcon": lambda: isosphere.SupConLoss(),
    "nt-xent": lambda: isosphere.NTXentLoss(),
    "circle": lambda: isosphere.CircleLoss(0.25, 8.0),
    "lifted structure": lambda: isosphere.LiftedStructureLoss(),
    "ranked list": lambda: isosphere.RankedListLoss(),
    "tuplet margin": lambda: isosphere.TupletMarginLoss(scale=8.0),
    "decoupled contrastive": lambda: isosphere.DecoupledContrastiveLoss(),
    "smooth AP": lambda: isosphere.SmoothAPLoss(0.1, per_class=2),
    "recall": lambda: isosphere.RecallSurrogateLoss(temperature=0.1, per_class=2),
    "own": lambda: OwnCriterion(own_losses.multi_similarity),
    "sub-centers": lambda: isosphere.SubCenterArcFace(6, 10, 0.3, 8.0, 2),
    "soft triple": lambda: isosphere.SoftTripleLoss(6, 10, 0.1, 8.0, 3),
    "sphereface2": lambda: isosphere.SphereFace2(6, 10, 0.2, 4.0),
    "magface": lambda: isosphere.MagFace(6, 10, scale=8.0),
    "adaface": lambda: isosphere.AdaFace(6, 10, scale=8.0),
    "proxy-anchor": lambda: isosphere.ProxyAnchorLoss(6, 10),
    "softmax": lambda: isosphere.LinearClassifier(6, 10),
    "arcface": lambda: isosphere.CosineClassifier(6, 10, isosphere.ArcFace(0.3), scale=8),
}
LOCAL = ("softmax", "arcface")  # means over samples: exact under DDP without a gather


def plain_ddp_loops(embeddings: torch.Tensor, labels: torch.Tensor, steps: int) -> dict[str, dict[str, Any]]:
    """Somebody else's loop for each kind of criterion: DDP, `gather` for pair losses, SEC with its own sync."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    rows = len(labels) // world
    mine = slice(rank * rows, (rank + 1) * rows)
    traces = {}
    for name, make in PLAIN_LOOPS.items():
        torch.manual_seed(0)
        parts = nn.ModuleDict({"model": nn.Linear(embeddings.shape[1], 6), "criterion": make()}).double()
        network, criterion = parts["model"], parts["criterion"]
        if world > 1:
            network = DistributedDataParallel(network)
            criterion = DistributedDataParallel(criterion) if name in LOCAL else criterion
        sec = isosphere.SEC(0.5, radius="ema", rho=0.2).double()
        optimizer = torch.optim.SGD(parts.parameters(), lr=0.05, momentum=0.9)
        first: dict[str, torch.Tensor] = {}
        for _ in range(steps):
            optimizer.zero_grad()
            raw, own = network(embeddings[mine]), labels[mine]
            loss = criterion(raw, own) if name in LOCAL else criterion(*isosphere.gather(raw, own))
            (loss + sec(raw)).backward()
            first = first or {path: value.grad.clone() for path, value in parts.named_parameters()}
            optimizer.step()
        weights = {path: value.detach() for path, value in parts.named_parameters()}
        traces[name] = {"gradients": first, "weights": weights, "constraint": sec.state_dict()}
    return traces


def _parameters(*modules: nn.Module) -> list[tuple[str, nn.Parameter]]:
    named = ((f"{n}.{name}", p) for n, module in enumerate(modules) for name, p in module.named_parameters())
    return [(name, p) for name, p in named if p.requires_grad]


def _spread_embeddings() -> torch.Tensor:
    return torch.arange(1.0, 9.0, dtype=torch.float64).view(8, 1) * torch.tensor([[0.6, 0.8]], dtype=torch.float64)


def sec_gradient(sync: bool) -> torch.Tensor:
    """The gradient of SEC on this rank's half of eight embeddings, without DDP's averaging."""
    mine = _spread_embeddings().chunk(dist.get_world_size())[dist.get_rank()].requires_grad_()
    isosphere.SEC(sync=sync)(mine).backward()
    return mine.grad


def whole_sec_gradient() -> torch.Tensor:
    """The same on all eight in one process."""
    embeddings = _spread_embeddings().requires_grad_()
    isosphere.SEC()(embeddings).backward()
    return embeddings.grad


def embeddings_of_all(count: int) -> torch.Tensor:
    """What evaluation sees of so many test images, gathered from all ranks."""
    run = prepare(tiny_recipe(), torch.device("cpu"))
    return embed(run.model, run.task.evaluation.images.subset(range(count)), None, run.device, batch=4)


def own_embeddings(folder: Path, files: list[Path]) -> list[torch.Tensor]:
    """Of another number of files on every rank, as photographs and as faces, and of more on the first rank alone."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    run, mine = isosphere.load_run(folder, "cpu"), files if world == 1 else files[3 * rank : 3 + 4 * rank]
    faces = replace(run, recipe=replace(run.recipe, data=schema.Faces(align=False)))
    found = [run.embed(mine), faces.embed(mine)]
    if rank == 0:
        run.embed(files), faces.embed(files)
    return found


def uneven_gather(rows: list[int], labels: list[int]) -> tuple[list[int], list[int]] | None:
    """What `gather` refuses of so many rows on each rank."""
    rank = dist.get_rank()
    try:
        isosphere.gather(torch.zeros(rows[rank], 2), torch.zeros(labels[rank], dtype=torch.long))
    except UnequalRanks as error:
        return error.embeddings, error.labels
    return None


def gather_of_kinds(kinds: list[tuple[torch.dtype, int, torch.dtype]]) -> int:
    """How many kinds `gather` refuses, where each rank brings its own dtype, width and dtype of labels; 0 for none."""
    dtype, width, label = kinds[dist.get_rank()]
    try:
        isosphere.gather(torch.zeros(4, width, dtype=dtype), torch.zeros(4, dtype=label))
    except UnequalRanks as error:
        return len(error.kinds)
    return 0


def uneven_penalties(sizes: list[int], settings: list[dict[str, Any]]) -> list[torch.Tensor]:
    """Gradients of SEC in each setting, and of LogNorms, by this rank's rows of a batch, as DDP would average them."""
    world, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    rows = torch.arange(1.0, 1 + sum(sizes), dtype=torch.float64).view(-1, 1)
    mine = (rows * torch.tensor([[0.6, 0.8]], dtype=torch.float64)).split(sizes if world > 1 else sum(sizes))[rank]
    found = []
    for constraint in (*(isosphere.SEC(**its) for its in settings), LogNorms()):
        embeddings = mine.clone().requires_grad_()
        constraint.double()(embeddings).backward()
        found.append(embeddings.grad / world)
    return found


def several_labels(embeddings: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
    """Gradients by this rank's embeddings, with multi-hot labels of integers and of bools."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    f, y = (part.chunk(world)[rank] for part in (embeddings, labels))
    f.requires_grad_()
    losses = [
        isosphere.MultiSimilarityLoss()(*isosphere.gather(f, y)),
        own_losses.contrastive(*isosphere.gather(f, y.bool())),
    ]
    return [torch.autograd.grad(loss, f)[0] for loss in losses]


def places(folder: Path) -> dict[str, Any]:
    """The folder that this rank claims as "own", and the process that holds "taken"."""
    with claimed(folder, "own") as found:
        dist.barrier()
    try:
        with held(folder / "taken"):
            return {}
    except Held as error:
        return {"claimed": found, "held": error.holder.split()[1]}


def synced_activation(dtypes: tuple[torch.dtype, ...]) -> list[torch.Tensor]:
    """A batch norm of timm that contains its activation, synchronized where there are ranks, on this rank's rows."""
    from timm.layers import BatchNormAct2d

    from isosphere.distributed import synchronize_batch_norm

    images = torch.arange(64.0, dtype=torch.float64).sin().view(8, 2, 2, 2)
    mine, found = images.chunk(dist.get_world_size())[dist.get_rank()] if dist.is_initialized() else images, []
    for dtype in dtypes:
        weights = torch.float64 if dtype == torch.float64 else torch.float32
        module = synchronize_batch_norm(nn.Sequential(BatchNormAct2d(2)).to(weights))
        found.append(module(mine.to(dtype)).detach())
    return found

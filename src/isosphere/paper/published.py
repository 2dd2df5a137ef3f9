"""The numbers that the paper printed, as plain data. They compare only where backbone and protocol agree.

| table | what | here |
|---|---|---|
| 1 | classes and images of the retrieval benchmarks | `SPLITS` |
| 2 | SEC's eta, triplet loss on Cars196 | `SEC_ABLATION` |
| 8 | L2-reg's eta, the same | `L2REG_METRICS`, `L2REG_ABLATION` |
| 9 | SEC-EMA's rho, the same | `RHO_METRICS`, `RHO_ABLATION`, `INITIAL_NORM` |
| 3, 10 | retrieval with BN-Inception, 512-d | `RETRIEVAL_METRICS`, `RETRIEVAL_RESULTS` |
| 4, 11 | faces with SE-ResNet50E-IR trained on CASIA-WebFace | `FACE_METRICS`, `FACE_RESULTS`, `FACE_ETAS` |
| 5, 12 | SimCLR with ResNet-50 | `SIMCLR_METRICS`, `SIMCLR_RESULTS`, `SIMCLR_ETAS` |
| 6 | iterations and learning rates for retrieval | `ITERATIONS`, `LEARNING_RATES` |
| 7, 10 | eta for retrieval | `ETAS` |
| 10, 11, 12 | rho | `RHOS` |

Results are in percent as printed (not the norms of Table 9). Tables 10 to 12 repeat 3 to 5 and add SEC-EMA, so each
pair is one dict. Losses of retrieval are triplet, semihard, npair and ms; `ROWS` has the methods.
"""

from typing import NamedTuple

from isosphere.recipes.constraints import SEC, Baseline, L2Reg

ROWS = tuple(one.method for one in (Baseline(), L2Reg(), SEC(), SEC(radius="ema")))
"""The methods of a printed table, in its order."""

Row = tuple[float, ...]


class Etas(NamedTuple):
    """The strengths of a printed table."""

    l2reg: float
    sec: float
    ema: float


def rows(*printed: Row) -> dict[str, Row]:
    """The rows of a printed table by method; some have the first alone."""
    return dict(zip(ROWS, printed, strict=False))


SPLITS = {
    "cub200": {"train_classes": 100, "test_classes": 100, "train_images": 5864, "test_images": 5924},
    "cars196": {"train_classes": 98, "test_classes": 98, "train_images": 8054, "test_images": 8131},
    "sop": {"train_classes": 11318, "test_classes": 11316, "train_images": 59551, "test_images": 60502},
    "inshop": {"train_classes": 3997, "test_classes": 3985, "train_images": 25882, "test_images": 26830},
}
"""Table 1."""

RHOS = {"retrieval": 0.01, "faces": 0.4, "contrastive": 0.2}
"""Weight of the newest batch in SEC-EMA's radius, the same in all rows of a table (Tables 10, 11, 12)."""

# ---------------------------------------------------------------- retrieval: settings

ITERATIONS = {"cub200": 8000, "cars196": 8000, "sop": 12000, "inshop": 12000}
"""Table 6."""

LEARNING_RATES = {
    ("cub200", "triplet"): (0.5e-5, 2.5e-6, 0.1, (5000,)),
    ("cub200", "semihard"): (0.5e-5, 2.5e-6, 0.1, (5000,)),
    ("cub200", "npair"): (1e-5, 5e-6, 0.1, (5000,)),
    ("cub200", "ms"): (5e-5, 2.5e-5, 0.1, (3000, 6000)),
    ("cars196", "triplet"): (1e-5, 1e-5, 0.5, (4000, 6000)),
    ("cars196", "semihard"): (1e-5, 1e-5, 0.5, (4000, 6000)),
    ("cars196", "npair"): (1e-5, 1e-5, 0.5, (4000, 6000)),
    ("cars196", "ms"): (4e-5, 4e-5, 0.1, (2000,)),
    **{
        (dataset, loss): (5e-4, 1e-4, 0.1, (6000,))
        for dataset in ("sop", "inshop")
        for loss in ("triplet", "semihard", "npair", "ms")
    },
}
"""Head, backbone, and the factor for both at these iterations (Table 6)."""

BETTER_NPAIR_ON_CARS196 = (2e-5, 2e-5, 0.5, (4000, 6000))
"""In place of that cell, this "would bring a better result" (footnote of Table 6)."""

ETAS = {
    ("cub200", "triplet"): Etas(1e-4, 1.0, 1.0),
    ("cub200", "semihard"): Etas(1e-3, 0.5, 0.5),
    ("cub200", "npair"): Etas(1e-2, 1.0, 1.0),
    ("cub200", "ms"): Etas(5e-3, 0.5, 0.5),
    ("cars196", "triplet"): Etas(1e-4, 0.5, 0.5),
    ("cars196", "semihard"): Etas(1e-2, 0.5, 0.5),
    ("cars196", "npair"): Etas(1e-2, 1.0, 1.0),
    ("cars196", "ms"): Etas(1e-2, 1.0, 1.0),
    ("sop", "triplet"): Etas(1e-4, 1.0, 1.0),
    ("sop", "semihard"): Etas(5e-4, 1.0, 1.0),
    ("sop", "npair"): Etas(1e-3, 1.0, 1.0),
    ("sop", "ms"): Etas(5e-4, 0.5, 0.5),
    ("inshop", "triplet"): Etas(5e-5, 1.0, 1.0),
    ("inshop", "semihard"): Etas(5e-5, 1.0, 1.0),
    ("inshop", "npair"): Etas(1e-3, 1.0, 1.0),
    ("inshop", "ms"): Etas(1e-4, 0.25, 0.25),
}
"""Tables 7 and 10."""

# ---------------------------------------------------------------- retrieval: results

RETRIEVAL_METRICS = {
    "cub200": ("nmi", "f1", "recall@1", "recall@2", "recall@4", "recall@8"),
    "cars196": ("nmi", "f1", "recall@1", "recall@2", "recall@4", "recall@8"),
    "sop": ("nmi", "f1", "recall@1", "recall@10", "recall@100", "recall@1000"),
    "inshop": ("recall@1", "recall@10", "recall@20", "recall@30", "recall@40", "recall@50"),
}
"""The columns of `RETRIEVAL_RESULTS`; `SEC_ABLATION` has those of Cars196."""

RETRIEVAL_RESULTS = {
    ("cub200", "triplet"): rows(
        (59.85, 23.39, 53.34, 65.60, 76.30, 84.98),
        (60.11, 24.03, 54.81, 66.21, 76.87, 84.91),
        (64.24, 30.83, 60.82, 71.61, 81.40, 88.86),
        (64.81, 32.14, 60.72, 72.45, 82.33, 89.18),
    ),
    ("cub200", "semihard"): rows(
        (69.66, 40.30, 65.31, 76.45, 84.71, 90.99),
        (70.50, 41.39, 65.60, 76.81, 84.89, 90.82),
        (71.62, 42.05, 67.35, 78.73, 86.63, 91.90),
        (72.00, 43.68, 67.51, 77.90, 86.44, 91.98),
    ),
    ("cub200", "npair"): rows(
        (69.58, 40.23, 61.36, 74.36, 83.81, 89.94),
        (69.73, 40.08, 64.58, 76.03, 84.74, 91.12),
        (72.24, 43.21, 66.00, 77.23, 86.01, 91.83),
        (71.62, 42.16, 65.82, 77.31, 86.07, 91.98),
    ),
    ("cub200", "ms"): rows(
        (70.57, 40.70, 66.14, 77.03, 85.43, 91.26),
        (70.89, 41.71, 65.67, 76.98, 85.21, 91.19),
        (72.85, 44.82, 68.79, 79.42, 87.20, 92.49),
        (74.22, 47.42, 69.78, 80.40, 88.00, 93.23),
    ),
    ("cars196", "triplet"): rows(
        (56.66, 24.44, 60.79, 71.30, 79.47, 86.27),
        (56.65, 23.95, 63.02, 72.97, 80.79, 86.85),
        (59.17, 25.51, 67.89, 78.56, 85.59, 90.99),
        (61.25, 28.87, 74.57, 83.96, 89.79, 93.78),
    ),
    ("cars196", "semihard"): rows(
        (67.64, 38.31, 80.17, 87.95, 92.49, 95.67),
        (69.24, 40.24, 82.60, 89.44, 93.54, 96.19),
        (72.67, 44.67, 85.19, 91.53, 95.28, 97.29),
        (72.38, 44.31, 84.73, 91.18, 95.07, 97.27),
    ),
    ("cars196", "npair"): rows(
        (68.07, 37.83, 78.59, 87.22, 92.88, 95.94),
        (69.20, 39.13, 81.87, 88.85, 93.47, 96.54),
        (70.61, 42.12, 82.29, 89.60, 94.26, 97.07),
        (70.97, 42.60, 81.85, 89.30, 93.83, 96.57),
    ),
    ("cars196", "ms"): rows(
        (70.23, 42.13, 84.07, 90.23, 94.12, 96.53),
        (71.00, 42.55, 84.82, 90.95, 94.59, 96.69),
        (73.95, 46.49, 85.73, 91.96, 95.51, 97.54),
        (71.70, 42.84, 83.80, 90.96, 94.99, 97.47),
    ),
    ("sop", "triplet"): rows(
        (88.67, 29.61, 62.69, 80.39, 91.89, 97.86),
        (88.93, 30.91, 64.07, 81.27, 92.18, 97.93),
        (89.68, 34.29, 68.86, 83.76, 92.93, 98.00),
        (88.64, 29.37, 64.03, 79.95, 90.71, 97.17),
    ),
    ("sop", "semihard"): rows(
        (91.16, 41.89, 74.46, 88.16, 95.21, 98.59),
        (91.16, 41.77, 74.88, 88.25, 95.18, 98.53),
        (91.72, 44.90, 77.59, 90.12, 96.04, 98.80),
        (91.68, 44.69, 77.45, 89.62, 95.70, 98.67),
    ),
    ("sop", "npair"): rows(
        (90.97, 41.21, 74.30, 87.81, 95.12, 98.55),
        (91.12, 41.73, 75.11, 88.42, 95.15, 98.53),
        (91.49, 43.75, 76.89, 89.64, 95.77, 98.68),
        (91.55, 43.84, 76.68, 89.46, 95.68, 98.70),
    ),
    ("sop", "ms"): rows(
        (91.42, 43.33, 76.29, 89.38, 95.58, 98.58),
        (91.65, 44.51, 77.34, 89.61, 95.67, 98.65),
        (91.89, 46.04, 78.67, 90.77, 96.15, 98.76),
        (91.35, 42.85, 76.84, 89.43, 95.54, 98.55),
    ),
    ("inshop", "triplet"): rows(
        (82.12, 95.18, 96.83, 97.54, 97.95, 98.26),
        (83.01, 95.46, 96.85, 97.45, 97.94, 98.28),
        (85.29, 96.29, 97.48, 97.99, 98.34, 98.57),
        (80.38, 94.16, 96.12, 96.91, 97.47, 97.81),
    ),
    ("inshop", "semihard"): rows(
        (87.16, 97.11, 98.17, 98.54, 98.76, 98.98),
        (88.04, 97.39, 98.24, 98.65, 98.83, 98.99),
        (89.68, 97.95, 98.61, 98.94, 99.09, 99.21),
        (89.79, 97.94, 98.59, 98.86, 99.08, 99.20),
    ),
    ("inshop", "npair"): rows(
        (86.43, 96.99, 98.00, 98.40, 98.70, 98.93),
        (86.54, 96.98, 98.06, 98.52, 98.73, 98.85),
        (88.63, 97.60, 98.45, 98.77, 99.01, 99.14),
        (89.06, 97.65, 98.46, 98.82, 98.97, 99.06),
    ),
    ("inshop", "ms"): rows(
        (88.11, 97.55, 98.34, 98.76, 98.94, 99.09),
        (88.51, 97.59, 98.50, 98.84, 99.03, 99.12),
        (89.87, 97.94, 98.80, 99.06, 99.24, 99.35),
        (89.39, 98.11, 98.76, 99.06, 99.19, 99.31),
    ),
}
"""Tables 3 and 10."""

SEC_ABLATION = {
    0.0: (56.66, 24.44, 60.79, 71.30, 79.47, 86.27),
    0.1: (59.08, 26.50, 66.72, 76.92, 84.39, 89.88),
    0.5: (59.17, 25.51, 67.89, 78.56, 85.59, 90.99),
    1.0: (58.43, 24.61, 64.97, 75.92, 84.18, 90.03),
    1.5: (56.38, 22.37, 57.72, 70.42, 80.04, 87.43),
}
"""SEC's eta, Cars196, triplet loss (Table 2)."""

L2REG_METRICS = ("nmi", "f1", "recall@1")

L2REG_ABLATION = {
    0.0: (56.49, 23.72, 60.84),
    1e-3: (55.95, 22.20, 57.16),
    5e-4: (56.20, 23.16, 61.35),
    1e-4: (56.65, 23.95, 63.02),
    5e-5: (56.65, 24.32, 61.48),
}
"""L2-reg's eta, Cars196, triplet loss (Table 8); 0 is a baseline of its own, not that of Tables 2, 3 and 10."""

RHO_METRICS = ("nmi", "f1", "recall@1", "norm_mean", "norm_variance")

RHO_ABLATION = {
    None: (56.49, 23.72, 60.84, 8.03, 5.54),
    0.01: (61.25, 28.87, 74.57, 6.03, 0.04),
    0.1: (59.96, 26.22, 72.00, 2.60, 0.02),
    0.5: (59.61, 27.01, 68.54, 1.72, 0.02),
    0.9: (59.74, 26.11, 68.28, 1.56, 0.02),
    1.0: (59.17, 25.51, 67.89, 1.58, 0.02),
}
"""SEC-EMA's rho, Cars196, triplet loss (Table 9); None is without SEC, 1 the original SEC. The norms are the final
ones; the paper does not say of which images."""

INITIAL_NORM = 8.70
"""Mean over Cars196's training set before training (Table 9); the fixed radius of App. C.1."""

# ---------------------------------------------------------------- faces

FACE_METRICS = ("lfw", "agedb30", "cfpfp", "megaface@1e6", "megaface@1e5", "megaface@1e4", "megaface@1e3")
"""Verification accuracy, then rank-1 identification among so many distractors."""

FACE_RESULTS = {
    "softmax": rows((98.97, 91.30, 93.39, 80.43, 87.11, 92.83, 96.12)),
    "sphereface": rows(
        (99.20, 93.45, 94.24, 87.72, 92.48, 95.64, 97.68),
        (99.28, 93.42, 94.30, 88.38, 92.86, 95.93, 97.87),
        (99.30, 93.45, 94.39, 88.42, 92.79, 95.88, 97.86),
        (99.33, 94.02, 94.93, 88.74, 92.91, 95.93, 97.87),
    ),
    "cosface": rows(
        (99.37, 93.82, 94.46, 90.71, 94.30, 96.57, 98.09),
        (99.12, 94.32, 94.64, 91.03, 94.46, 96.85, 98.24),
        (99.42, 94.37, 94.93, 91.13, 94.63, 96.92, 98.37),
        (99.18, 94.17, 94.79, 91.31, 94.61, 96.85, 98.33),
    ),
    "arcface": rows(
        (99.22, 94.18, 94.69, 90.31, 94.07, 96.67, 98.20),
        (99.32, 93.93, 94.77, 90.68, 94.34, 96.83, 98.32),
        (99.35, 93.82, 94.91, 90.91, 94.56, 96.95, 98.37),
        (99.27, 93.90, 94.74, 91.02, 94.74, 97.02, 98.46),
    ),
}
"""Tables 4 and 11."""

FACE_ETAS = {
    "sphereface": Etas(5e-3, 5.0, 1.0),
    "cosface": Etas(5e-3, 5.0, 1.0),
    "arcface": Etas(1e-3, 5.0, 1.0),
}
"""Table 11."""

# ---------------------------------------------------------------- SimCLR

SIMCLR_METRICS = ("top1", "top5")

SIMCLR_RESULTS = {
    ("cifar10", 100): rows((84.76, 99.36), (86.64, 99.56), (86.87, 99.64), (86.82, 99.58)),
    ("cifar10", 200): rows((89.05, 99.69), (90.14, 99.73), (90.35, 99.77), (90.21, 99.75)),
    ("cifar100", 100): rows((58.43, 85.26), (61.43, 87.23), (61.66, 87.33), (61.88, 87.85)),
    ("cifar100", 200): rows((65.73, 89.64), (66.57, 90.18), (66.25, 90.12), (66.59, 90.41)),
}
"""Linear evaluation by data set and epochs (Tables 5 and 12)."""

SIMCLR_ETAS = {
    ("cifar10", 100): Etas(5e-3, 0.25, 0.5),
    ("cifar10", 200): Etas(5e-3, 0.25, 1.0),
    ("cifar100", 100): Etas(1e-3, 0.01, 0.05),
    ("cifar100", 200): Etas(1e-3, 0.01, 0.05),
}
"""Table 12."""

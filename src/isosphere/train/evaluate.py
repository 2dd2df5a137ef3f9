"""Old names, until everybody has switched."""

from isosphere.inference import embed, half_precision, workers
from isosphere.train.evaluation import norm_statistics

__all__ = ["embed", "half_precision", "norm_statistics", "workers"]

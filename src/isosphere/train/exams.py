"""Old names, until everybody has switched."""

from isosphere.train.contrastive import RATES

__all__ = ["RATES"]

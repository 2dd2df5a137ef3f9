"""The learning rate as a pure function of progress."""

import math

from isosphere.recipes import schema


def lr_factor(schedule: schema.Schedule, progress: float) -> float:
    """What the first learning rate is multiplied by when the fraction `progress` of training lies behind."""
    if progress < schedule.warmup:
        return progress / schedule.warmup
    if isinstance(schedule, schema.MultiStep):
        return schedule.factor ** sum(progress >= at for at in schedule.at)
    if isinstance(schedule, schema.Cosine):
        fallen = (progress - schedule.warmup) / (1 - schedule.warmup)
        return schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * fallen)) / 2
    return 1.0

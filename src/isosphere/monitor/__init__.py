"""`NormMonitor`: what norms do to directions, in any PyTorch loop, in two lines, without waiting for the device.

    monitor = NormMonitor(optimizer, file="norms.jsonl")
    monitor(embeddings)  # the raw ones, between forward and backward pass

A step only keeps norms and two numbers of each gradient, on the device. Every so many steps the figures of all of them
are computed at once and read in one transfer. A figure that is undefined is left out. Such are the gradient's share
without a backward pass, and the slope of a probe whose norms are all alike.
"""

from isosphere.monitor.alarms import Episodes, alarms, proxy_power
from isosphere.monitor.figures import FIGURES, norm_figures, norm_record, recorded, turn_figures, turned
from isosphere.monitor.watch import NormMonitor

__all__ = [
    "Episodes", "FIGURES", "NormMonitor", "alarms", "norm_figures", "norm_record", "proxy_power",
    "recorded", "turn_figures", "turned",
]  # fmt: skip

"""A trained model at work: load it from its run folder, preprocess images, embed them."""

from .embedding import Forward, ImageEmbedder, embed, evaluating, half_precision, progress_bar, workers
from .exported import CONFIG, FORMAT, WEIGHTS, load
from .identity import described_preprocessing, fingerprint
from .loading import build_model, load_run, load_weights, read_checkpoint
from .preprocessing import completed, evaluation_view, for_other_images, naming, parse_place, preprocessed
from .trained import Pixels, Trained, embed_files

__all__ = [
    "CONFIG", "FORMAT", "Forward", "ImageEmbedder", "Pixels", "Trained", "WEIGHTS", "build_model",
    "completed",
    "described_preprocessing", "embed", "embed_files", "evaluating", "evaluation_view", "fingerprint",
    "for_other_images", "half_precision", "load", "load_run", "load_weights", "naming", "parse_place",
    "preprocessed", "progress_bar", "read_checkpoint", "workers",
]  # fmt: skip

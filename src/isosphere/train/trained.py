"""Old names, until everybody has switched."""

from isosphere.inference import Trained, embed_files, feature_maps, load_run
from isosphere.inference import for_other_images as for_others
from isosphere.train.measure import measure_run, probe_run
from isosphere.train.state import missing_place
from isosphere.train.state import resumed_recipe as changed_here


def moved(data):
    return missing_place(data).removeprefix("data.")


__all__ = [
    "Trained", "changed_here", "embed_files", "feature_maps", "for_others", "load_run", "measure_run", "moved",
    "probe_run",
]  # fmt: skip

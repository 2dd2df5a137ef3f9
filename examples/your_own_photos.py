"""Train on your own photographs from Python: python examples/your_own_photos.py FOLDER [STEPS]

FOLDER holds one folder of images per class. Half of the classes train, the other half measure. The same from the
command line: isosphere train FOLDER
"""

import argparse
from pathlib import Path

from isosphere.recipes import find
from isosphere.train.folder import claimed
from isosphere.train.loop import fit

parser = argparse.ArgumentParser(description="Train on your own photographs.")
parser.add_argument("folder", help="holds one folder of images per class")
parser.add_argument("steps", nargs="?", default="500")
asked = parser.parse_args()
recipe = find(
    "photos-sec",
    {
        "data.root": asked.folder,
        "loop.steps": asked.steps,
        "batches.size": "20",
        "batches.per_class": "4",
        # With pretrained weights at hand, these make the difference:
        # "model.backbone": "resnet50", "model.weights": "resnet50.safetensors", "model.freeze_bn": "true",
        # "data.size": "227", "data.shorter": "256", "optimizer.lr": "2e-5",
    },
)
with claimed("runs", f"{Path(asked.folder).name}-example") as folder:  # a new one each time
    result = fit(recipe, folder)
print(folder, {name: round(value, 4) for name, value in result["last"].items()})

"""Train on your own photographs from Python: python examples/your_own_photos.py FOLDER [STEPS]

FOLDER holds one folder of images per class. Half of the classes train, the other half measure. The same from the
command line: isosphere train FOLDER
"""

import argparse

import isosphere

parser = argparse.ArgumentParser(description="Train on your own photographs.")
parser.add_argument("folder", help="holds one folder of images per class")
parser.add_argument("steps", nargs="?", type=int, default=500)
asked = parser.parse_args()

run = isosphere.fit(
    "photos-sec",
    data=asked.folder,
    loop={"steps": asked.steps},
    batches={"size": 20, "per_class": 4},
    # With pretrained weights at hand, these make the difference:
    # model={"backbone": "resnet50", "weights": "resnet50.safetensors", "freeze_bn": True},
    # optimizer={"lr": 2e-5}; data={"root": asked.folder, "size": 227, "shorter": 256} in place of the folder
)
print(run.folder, {name: round(value, 4) for name, value in run.metrics.items()})

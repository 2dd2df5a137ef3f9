"""LFW, CFP and CelebA cut to frames in which faces lie alike: python examples/face_frames.py FACES OUT

FACES holds lfw/, cfp/ and celeba/ with the lists that face_lists.py writes. OUT gets the same folders and lists, each
photograph as 112 x 112 pixels: one fixed square for all photographs of a set, chosen so that in the median the eyes are
as far apart in all three (43 pixels) and LFW's as high as CFP's. Of CelebA's scenes about half then show both eyes.
"""

import shutil
import sys
from pathlib import Path

import torch
from PIL import Image

from isosphere.data.alignment import FaceView, framed
from isosphere.data.images import ImageSet

SQUARES = {  # share of the shorter side, and how far above the middle; CFP's photographs end close above the eyes
    "lfw": FaceView(fraction=0.43, rise=-0.06),
    "cfp": FaceView(fraction=1.0, rise=-1.0),  # the lowest square there is
    "celeba": FaceView(fraction=0.40, rise=0.10),
}

if __name__ == "__main__":  # framing has workers, which read this file again
    if len(sys.argv) != 3:
        sys.exit(print("usage:", __doc__.splitlines()[0].split(": ")[1], file=sys.stderr) or 2)
    faces, out = map(Path, sys.argv[1:])
    for name, view in SQUARES.items():
        files = [file for file in sorted((faces / name).rglob("*")) if file.is_file()]
        photographs = [file for file in files if file.suffix.lower() == ".jpg"]
        placed = {"landmarks.txt", "Fiducials"}  # points in the old frames
        lists = [file for file in files if file.suffix in (".txt", ".csv") and placed.isdisjoint(file.parts)]
        for file in lists:
            (out / file.relative_to(faces)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, out / file.relative_to(faces))
        images = ImageSet(torch.zeros(len(photographs), dtype=torch.long), [name], list(map(str, photographs)))
        for file, pixels in zip(photographs, framed(images, view).pixels, strict=True):
            (out / file.relative_to(faces)).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(out / file.relative_to(faces), quality=90)
        print(f"{out / name}: {len(photographs)} photographs, {len(lists)} lists")

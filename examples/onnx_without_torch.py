"""Search with an ONNX file that `isosphere export RUN --to onnx` wrote: onnxruntime, numpy and Pillow, no torch.

    python onnx_without_torch.py model.onnx query.jpg ./photos
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

if len(sys.argv) != 4:
    sys.exit(f"usage: {sys.argv[0]} MODEL.onnx QUERY FOLDER")
model, query, folder = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
if session.get_modelmeta().custom_metadata_map["unit"] != "true":
    sys.exit(f"{model} gives raw embeddings: export it without --raw")


def embed(path: str | Path) -> np.ndarray:
    """The unit embedding (D,) of an image file. Images of one size could go through in one batch."""
    with Image.open(path) as image:
        pixels = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))  # (H, W, 3)
    return session.run(None, {"images": pixels.transpose(2, 0, 1)[None]})[0][0]


photos = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
cosines = np.stack([embed(path) for path in photos]) @ embed(query)
for index in np.argsort(-cosines, kind="stable")[:10]:
    print(f"{cosines[index]:.3f}  {photos[index]}")

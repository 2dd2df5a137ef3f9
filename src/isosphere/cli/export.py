"""Write a trained model for use elsewhere: ONNX, torch.export, or a folder for a model hub.

  isosphere export runs/my_photos-seed0 --to onnx
  isosphere export runs/my_photos-seed0 --to torch --out model.pt2
  isosphere export runs/my_photos-seed0 --to safetensors --out my-photos

| --to        | writes                            | needs                        |
| onnx        | one file with the preprocessing   | ONNX Runtime, no torch       |
| torch       | one file with the preprocessing   | torch, no isosphere          |
| safetensors | weights, config and a model card  | isosphere.load("my-photos")  |

onnx and torch take RGB images, uint8 (N, 3, H, W), all of one size, upright. They give embeddings (N, D).
These have length 1, as search wants them; with --raw they are as the network gives them.
Each file is compared with torch on made-up pictures before it is kept.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser
from isosphere.errors import BadUsage

ENDINGS = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ""}


def declare(parser: Parser) -> None:
    parser.add_argument("run", type=Path, help="the run folder of the trained model")
    parser.add_argument("--to", choices=ENDINGS, required=True, help="the format")
    parser.add_argument("--out", type=Path, help="the file, or the new folder; by default named as the run, here")
    parser.add_argument("--raw", action="store_true", help="onnx, torch: embeddings of any length, not of length 1")


def run(asked: Namespace) -> None:
    from isosphere import export, inference, runs

    if asked.raw and asked.to == "safetensors":
        raise BadUsage("isosphere export", "--raw is for onnx and torch: a folder has both, `embed` and `encode`")
    trained = inference.load(asked.run, "cpu")
    out = asked.out or Path(asked.run.resolve().name + ENDINGS[asked.to])
    if asked.to == "safetensors":
        is_run = (asked.run / runs.RECIPE).is_file()
        export.to_folder(trained, out, runs.read(asked.run).last if is_run else None)
        print(out)
        return
    write = export.to_onnx if asked.to == "onnx" else export.to_program
    found = write(trained, out, unit=not asked.raw)
    print(out)
    print(f"to torch, at most: {found.error:.1e} of the mean norm (limit {export.LIMIT:.0e})")
    print(f"to `embed`, which rounds pixel values after resizing: cosine {found.cosine:.6f} or more")

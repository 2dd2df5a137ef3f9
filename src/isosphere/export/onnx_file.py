"""The pipeline as one ONNX file, compared with torch in ONNX Runtime."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

import isosphere
from isosphere import files
from isosphere.errors import Unsupported, need_all
from isosphere.inference import Trained

from .graphs import Check, Graph, checked, metadata, program_of, unsupported
from .pipeline import Pipeline

LARGEST = 2**31 - 2**24  # bytes of weights: a protobuf file has at most 2 GiB
SHAPES = {"images": {0: "batch", 2: "height", 3: "width"}}


def to_onnx(trained: Trained, path: str | Path, unit: bool = True) -> Check:
    """Write one ONNX file: `images` uint8 (N, 3, H, W) -> `embeddings` (N, D), of unit length or raw.

    N, H and W are free. The metadata says what goes in and what comes out.
    """
    need_all("export", "an ONNX file")
    files.writable(path)
    size = sum(value.nbytes for value in trained.model.state_dict().values())
    if size > LARGEST:
        raise Unsupported(f"a model of {size / 2**30:.1f} GiB", "one ONNX file", "use --to torch or --to safetensors")
    pipeline = Pipeline(trained, unit)
    program = program_of(pipeline, trained, "ONNX")
    options: dict[str, Any] = {
        "input_names": ["images"],
        "output_names": ["embeddings"],
        "dynamic_shapes": SHAPES,
        "custom_translation_table": {torch.ops.aten.frexp.Tensor: _frexp},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own code
        try:
            made: Any = torch.onnx.export(program, dynamo=True, verbose=False, **options)
        except Exception as error:  # the exporter raises almost anything
            raise unsupported(trained, "ONNX", error) from error
    made.model.producer_name, made.model.producer_version = "isosphere", isosphere.__version__
    made.model.metadata_props.update(metadata(trained, unit))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        made.save(file, external_data=False)
        found = checked(path, pipeline, in_onnx_runtime(file), trained)
        files.write(path, file.read_bytes())
    return found


def in_onnx_runtime(file: Path) -> Graph:
    """What a file computes on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def _frexp(values: Any) -> tuple[Any, Any]:
    """Mantissa and exponent, which ONNX lacks; of 0 they are not numbers."""
    import onnxscript

    op: Any = onnxscript.opset18
    two, one = (op.CastLike(op.Constant(value_float=value), values) for value in (2.0, 1.0))
    exponent = op.Add(op.Floor(op.Div(op.Log(values), op.Log(two))), one)
    return op.Div(values, op.Pow(two, exponent)), op.Cast(exponent, to=6)  # int32

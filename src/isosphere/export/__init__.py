"""A trained model in other people's formats: an ONNX file, a torch.export program, a folder for a model hub."""

from isosphere.errors import need_all

need_all("train", "isosphere.export")

from .folder import to_folder  # noqa: E402
from .graphs import LIMIT, Check, to_program  # noqa: E402
from .onnx_file import to_onnx  # noqa: E402
from .pipeline import Pipeline  # noqa: E402

__all__ = ["LIMIT", "Check", "Pipeline", "to_folder", "to_onnx", "to_program"]

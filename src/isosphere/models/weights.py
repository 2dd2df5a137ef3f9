"""Weight files: read without running their code, and loaded into a backbone that they must fit."""

from pathlib import Path

from torch import Tensor, nn

from isosphere.errors import DamagedFile, NotFound, UnfitWeights
from isosphere.tensor_files import read_tensors


def load_backbone(network: nn.Module, path: str, classifier: str) -> None:
    """Load a weight file into the backbone. A classifier's weights may be superfluous; none may be missing."""
    state = read_weights(path)
    wanted = network.state_dict()
    dropped = tuple(f"{name}." for name in (classifier, "fc", "last_linear", "classifier", "head.fc") if name)
    state = {key: value for key, value in state.items() if key in wanted or not key.startswith(dropped)}
    problems = {
        "missing": [key for key in wanted if key not in state and not key.endswith("num_batches_tracked")],
        "unknown": [key for key in state if key not in wanted],
        "of another shape": [key for key in wanted if key in state and wanted[key].shape != state[key].shape],
        "not finite": [key for key, value in state.items() if not value.isfinite().all()],
    }
    for problem, keys in problems.items():
        if keys:
            raise UnfitWeights(path, problem, keys)
    network.load_state_dict(state, strict=False)


def read_weights(path: str) -> dict[str, Tensor]:
    """A state_dict from .safetensors, or from .pth with torch's loader that runs no code."""
    file = Path(path)
    if not file.is_file():
        raise NotFound(path, "weight file")
    if file.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(file)
        except SafetensorError as error:
            raise DamagedFile(path, str(error)) from error
    state = read_tensors(path)
    for wrapper in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    pairs = state.items() if isinstance(state, dict) else [(None, None)]
    if not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in pairs):
        raise DamagedFile(path, "it does not hold a state_dict of tensors")
    return {key.removeprefix("module."): value for key, value in state.items()}

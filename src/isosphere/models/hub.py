"""timm's networks: by name, of a repository of the Hugging Face hub, or of a local folder in the hub's format.

`hf_hub:ORG/NAME` and `local-dir:PATH` hold a config.json and weights. What is in the hub's cache is taken without
asking the hub. One that cannot be reached is an error within seconds, where its own client tries for most of a minute.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from isosphere.errors import BadArgument, DamagedFile, NotFound, Option, UnknownName, Unreachable
from isosphere.models.preprocessing import Preprocessing

HUB, FOLDER = ("hf_hub", "hf-hub"), "local-dir"
CONFIG, WEIGHTS = "config.json", ("model.safetensors", "pytorch_model.bin")
PATIENCE = 10.0  # seconds in which the hub must answer
Size = int | tuple[int, int]  # of a square, or height and width
Built = tuple[nn.Module, int, Preprocessing, str, dict[str, Any]]


def is_source(name: str) -> bool:
    """Whether a name says where config and weights are: `hf_hub:ORG/NAME` or `local-dir:PATH`."""
    source, colon, _ = name.partition(":")
    return bool(colon) and source in (*HUB, FOLDER)


def build(name: str, size: Size | None, pretrained: bool, origin: dict[str, Any] | None = None) -> Built:
    """(network giving features, their number, preprocessing, classifier that was left out, origin).

    The origin builds the network again without hub or folder: its name in timm, its arguments, mean and std.
    """
    origin = origin or _origin(name)
    chosen, arguments = origin["name"], dict(origin["arguments"])
    if pretrained and is_source(name):
        chosen = _place(name)
    elif pretrained:
        arguments["pretrained_cfg_overlay"] = _overlay(name)
    network = _created(name, chosen, size, pretrained, arguments)
    settings: Any = network.pretrained_cfg
    features: Any = getattr(network, "head_hidden_size", None) or network.num_features
    preprocessing = Preprocessing(mean=tuple(origin["mean"]), std=tuple(origin["std"]))
    return network, features, preprocessing, str(settings.get("classifier") or ""), origin


def is_at_hand(name: str) -> bool:
    """Whether weights of this name are in the cache, or the hub that has them answers."""
    try:
        _place(name) if is_source(name) else _overlay(name)
    except (Unreachable, BadArgument, NotFound):
        return False
    return True


def settings_of(name: str) -> dict[str, Any]:
    """What the weights of a network expect of their images, as timm resolves it: input_size, mean, interpolation ..."""
    from timm.data import resolve_data_config

    found = _config(name)["pretrained_cfg"] if is_source(name) else _known(name)
    return resolve_data_config(pretrained_cfg=found)


def _known(name: str) -> dict[str, Any]:
    """timm's own settings of a network's weights; of one without any, what all have by default."""
    import timm

    settings = timm.get_pretrained_cfg(name, allow_unregistered=True)
    return settings.to_dict() if settings else {"input_size": (3, 224, 224)}


def _origin(name: str) -> dict[str, Any]:
    settings = settings_of(name)
    config: dict[str, Any] = _config(name) if is_source(name) else {"architecture": name}
    found = {"name": config["architecture"], "arguments": dict(config.get("model_args") or {})}
    return found | {"mean": [*map(float, settings["mean"])], "std": [*map(float, settings["std"])]}


def _created(name: str, chosen: str, size: Size | None, pretrained: bool, arguments: dict[str, Any]) -> nn.Module:
    """timm's network without its classifier. Transformers, which ask for the images' size, get it."""
    import timm

    make = partial(timm.create_model, chosen, pretrained=pretrained, num_classes=0)
    try:
        if size is not None:
            try:
                return make(**arguments | {"img_size": size})
            except TypeError as error:
                if "img_size" not in str(error):
                    raise
        return make(**arguments)
    except Exception as error:
        if not pretrained:
            raise
        if isinstance(error, OSError) and not name.startswith(FOLDER):  # of the hub's client, or of urllib
            raise _unreachable(name, error) from error
        raise DamagedFile(chosen, f"its weights do not load: {' '.join(str(error).split())[:200]}") from error


# ---------------------------------------------------------------- the hub and its cache


def _config(name: str) -> dict[str, Any]:
    """A config.json in the hub's form: architecture, model_args and pretrained_cfg."""
    import timm

    source, _, place = name.partition(":")
    path = Path(place, CONFIG) if source == FOLDER else Path(_fetched(name, CONFIG))
    if not path.is_file():
        raise NotFound(path, "file of a model")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        config = found if "pretrained_cfg" in found else {"pretrained_cfg": found} | found  # older files have one level
        architecture = str(config["architecture"])
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedFile(path, f"no config of a timm model ({type(error).__name__}: {error})") from error
    if not timm.is_model(architecture):
        raise UnknownName(f"network of timm (in {path})", architecture, timm.list_models(f"*{architecture[:6]}*"))
    return config


def _place(name: str) -> str:
    """The name by which timm loads a repository's or a folder's weights: a folder of the cache needs no hub."""
    source, _, place = name.partition(":")
    if source == FOLDER:
        return name
    config, weights = (_cached(place, files) for files in ((CONFIG,), WEIGHTS))
    if config and weights and Path(config).parent == Path(weights).parent:
        return f"{FOLDER}:{Path(config).parent}"
    _reach(name)
    return f"hf-hub:{place}"


def _overlay(name: str) -> dict[str, str]:
    """Where timm finds the weights of one of its own names, if they are in the cache; else the hub must answer."""
    import timm

    known = timm.get_pretrained_cfg(name, allow_unregistered=True)
    if known is None or not known.has_weights:
        raise BadArgument(Option("model.pretrained"), True, f"false for {name}, of which timm knows no weights")
    if known.hf_hub_id and not (known.hf_hub_filename or known.custom_load):
        if file := _cached(known.hf_hub_id, WEIGHTS):
            return {"file": file}
    if known.hf_hub_id:
        _reach(name)
    return {}


def _fetched(name: str, file: str) -> str:
    """A file of a repository, from the cache or the hub."""
    from huggingface_hub import hf_hub_download

    place = name.partition(":")[2]
    found = _cached(place, (file,))
    if found is None:
        _reach(name)
        repository, _, revision = place.partition("@")
        try:
            found = hf_hub_download(repository, file, revision=revision or None)
        except (OSError, ValueError) as error:  # no such repository, or no right to it
            raise _unreachable(name, error) from error
    return found


def _cached(place: str, files: tuple[str, ...]) -> str | None:
    """The first of a repository's files that is in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = place.partition("@")
    try:
        found = (try_to_load_from_cache(repository, file, revision=revision or None) for file in files)
        return next((path for path in found if isinstance(path, str)), None)
    except ValueError as error:
        raise BadArgument(Option("model.backbone"), place, f"ORG/NAME of a repository ({error})") from error


def _reach(name: str) -> None:
    """Ask whether the hub answers."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception as error:  # of httpx or requests, whichever this version has
        raise _unreachable(name, error) from error


def _unreachable(name: str, error: Exception) -> Unreachable:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return Unreachable(name, reason, Option("model.weights", "FILE"))

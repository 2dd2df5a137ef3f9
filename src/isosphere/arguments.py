"""What the command line is given: lists of values, changed fields, the recipe meant, names of files, a run's recipe."""

import hashlib
import sys
from pathlib import Path

from isosphere import runs
from isosphere.paper import ALL, find
from isosphere.recipes import options, schema

NAMESAKES = ("data.size", "data.scale", "data.seed", "data.per_class")  # of other groups' fields
LISTS = ("--seeds", "--losses", "--arms", "--images")  # options that take several values


def spread_lists(words: list[str]) -> list[str]:
    """["--seeds", "0", "1"] -> ["--seeds", "0", "--seeds", "1"], the form that the command-line library knows."""
    spread, option = [], ""
    for word in words:
        if word.startswith("--"):
            option = word if word in LISTS else ""
        elif option and spread[-1] != option:
            spread.append(option)
        spread.append(word)
    return spread


def parse_changes(words: list[str]) -> dict[str, str]:
    """["--loss.margin", "0.5", "--seed=1"] -> {"loss.margin": "0.5", "seed": "1"}."""
    changes, rest = {}, list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise ValueError(f"unexpected {word!r}; fields are changed with --group.field value")
        name, equals, value = word[2:].partition("=")
        if not equals:
            if not rest:
                raise ValueError(f"--{name} needs a value")
            value = rest.pop(0)
        changes[name] = value
    return runs.translate_changes(changes)


def split_changes(words: list[str]) -> tuple[list[str], list[str]]:
    """["a", "--metric", "map@r", "b"] -> ["a", "b"] and ["--metric", "map@r"], what `parse_changes` takes."""
    others, changes = [], []
    for word in words:
        wanting = len(changes) > 0 and changes[-1].startswith("--") and "=" not in changes[-1]  # a value
        (changes if wanting or word.startswith("--") else others).append(word)
    return others, changes


def asked_for(words: list[str], changes: dict[str, str]) -> tuple[str, schema.Recipe]:
    """The name of the recipe that `train` means, and the recipe with fields changed.

    The words are a recipe's name, this and the path of images, or the path alone, which is `photos-sec`.
    """
    if not words:
        raise ValueError("name a recipe or a folder of images (`isosphere recipes` lists the recipes)")
    name, *rest = words
    if name not in ALL and Path(name).exists():
        name, rest = "photos-sec", words
    recipe = find(name, {})
    if len(rest) > 1 or (rest and not hasattr(recipe.data, "root")):
        told = f"{name} has no data.root" if len(rest) == 1 else "fields are changed with --group.field value"
        raise ValueError(f"unexpected {rest[-1]!r}; {told}")
    if rest and "data.root" in changes:
        raise ValueError(f"name the images once: {rest[0]}, or --data.root {changes['data.root']}")
    return name, options.override(recipe, {"data.root": rest[0]} | changes if rest else changes)


def free_folder(parent: Path, name: str, suffix: str = "") -> Path:
    """A path that does not exist yet, so that no run is ever overwritten; under torchrun all ranks get the same."""
    number = 1
    while (path := parent / f"{name}{f'-{number}' if number > 1 else ''}{suffix}").exists():
        number += 1
    return path


def results_suffix(marks: list[str], changes: dict[str, str], tuned_by: Path | None) -> str:
    """What tells a table's results file from others: another experiment's runs are not seeds of this one."""
    names = {key: key if key in NAMESAKES else key.split(".")[-1] for key in sorted(changes)}
    told = marks + [f"{name}={changes[key]}" for key, name in names.items()]
    told += [f"tuned-by={tuned_by.stem}"] if tuned_by else []
    suffix = "".join(f"_{mark}".replace("/", "-") for mark in told)
    if len(suffix) <= 80:
        return suffix
    marks = marks + ["tuned-by"] * bool(tuned_by) + [hashlib.sha256(suffix.encode()).hexdigest()[:8]]
    return "".join(f"_{mark}" for mark in marks)  # the rest is too long for a file's name


def note(text: str) -> None:
    print(f"isosphere: {text}", file=sys.stderr)

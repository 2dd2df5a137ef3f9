"""Errors as types with fields, a file for each stage. The front end puts them into words.

`text` is a template over the fields. An `Option` is a recipe's field and the value that would help. Python reads it
as `data.allow_shared=True`, the command line as `--data.allow_shared true`. Exit codes come from the types.
"""

from .arguments import BadArgument, Incompatible, MissingExtra, UnknownField, UnknownRecipe, WrongSize, need
from .base import InputError, IsosphereError, Option, RunError, as_argument, as_flag, kinds, words
from .data import (
    MovedData,
    NoProbe,
    NoSplit,
    NoTestPart,
    OneKindOfPairs,
    OneSplit,
    ProbesAmongDistractors,
    RepeatedDistractors,
    SingleImages,
    SinglePhotographs,
    TooFewClasses,
    TrainedPhotographs,
    UntrainedClasses,
)
from .files import DamagedFile, Held, NoFolder, NotAPlainFile, OtherVersion
from .runs import (
    BadCheckpoint,
    MissingPart,
    NoCheckpoint,
    NotARun,
    NotResults,
    NotSaved,
    OtherData,
    OtherImages,
    OtherRecipe,
    RunExists,
    UnfinishedRun,
)
from .train import Diverged, Interrupted, Stopped
from .usage import BadUsage, UnknownOption

__all__ = [
    "BadArgument",
    "BadCheckpoint",
    "BadUsage",
    "DamagedFile",
    "Diverged",
    "Held",
    "Incompatible",
    "InputError",
    "Interrupted",
    "IsosphereError",
    "MissingExtra",
    "MissingPart",
    "MovedData",
    "NoCheckpoint",
    "NoFolder",
    "NoProbe",
    "NoSplit",
    "NoTestPart",
    "NotAPlainFile",
    "NotARun",
    "NotResults",
    "NotSaved",
    "OneKindOfPairs",
    "OneSplit",
    "Option",
    "OtherData",
    "OtherImages",
    "OtherRecipe",
    "OtherVersion",
    "ProbesAmongDistractors",
    "RepeatedDistractors",
    "RunError",
    "RunExists",
    "SingleImages",
    "SinglePhotographs",
    "Stopped",
    "TooFewClasses",
    "TrainedPhotographs",
    "UnfinishedRun",
    "UnknownField",
    "UnknownRecipe",
    "UnknownOption",
    "UntrainedClasses",
    "WrongSize",
    "as_argument",
    "as_flag",
    "kinds",
    "need",
    "words",
]

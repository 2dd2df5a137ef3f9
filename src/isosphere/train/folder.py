"""Who has a run folder: one run at a time, which is one process, or all ranks of one.

The lock ends with the process. It is a file inside, so that it moves with the folder.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from isosphere import distributed, files, locks
from isosphere.errors import Held
from isosphere.runs import RECIPE, SNAPSHOTS

LOCK = ".lock"


@contextmanager
def held(folder: str | Path) -> Iterator[list[str]]:
    """Hold a run folder, made if need be; gives the names of what is in it. One that we made and left empty goes.

    Where another run holds it, all ranks raise `Held`.
    """
    folder = Path(folder)
    with ExitStack() as stack:
        yield distributed.on_first(lambda: _hold(folder, stack))


def _hold(folder: Path, stack: ExitStack) -> list[str]:
    made = [its for its in (folder, *folder.parents) if not its.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    stack.callback(_remove_empty, made)
    try:
        with files.on_disk(folder):
            stack.enter_context(locks.hold(folder / LOCK))
    except Held as error:
        raise Held(str(folder), error.holder) from None
    left = files.leftovers(folder) + files.leftovers(folder / SNAPSHOTS)
    ours = {path.name for path in left}
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith(LOCK) and path.name not in ours)
    if not names or RECIPE in names:  # a run's folder, where nobody else writes
        for path in left:
            path.unlink()
    return names


@contextmanager
def claimed(parent: str | Path, name: str) -> Iterator[Path]:
    """A folder of this name, or with the next free number, that no other run has. All ranks get the same.

    One that is left empty is removed again.
    """
    with ExitStack() as stack:
        yield distributed.on_first(lambda: _claim(Path(parent), name, stack))


def _claim(parent: Path, name: str, stack: ExitStack) -> Path:
    made = [its for its in (parent, *parent.parents) if not its.exists()]
    parent.mkdir(parents=True, exist_ok=True)
    number, folder = 1, parent / name
    while True:
        try:
            folder.mkdir()
            break
        except FileExistsError:
            number += 1
            folder = parent / f"{name}-{number}"
    stack.callback(_remove_empty, [folder, *made])
    return folder


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders that are empty, the innermost first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()

"""Whatever is wrong in a run folder: lenient reading goes on, strict reading raises one typed error with the file.

`make hostile` does it with every damage and every command.
"""

import json
import random
import warnings
from pathlib import Path

import pytest

from hostile.damage import Damage, damages
from isosphere import runs
from isosphere.errors import IsosphereError, NotARun
from isosphere.report import page
from written import write_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    run = write_run(tmp_path_factory.mktemp("whole") / "run", 0.5, 0)
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(about | {"seen_from": "..", "git": "abc"}))
    return run


def some(whole: Path, count: int) -> list[tuple[Damage, bytes]]:
    """Damages, others in each process of the tests, and what their files held."""
    found = [*damages(whole)]
    begins = ("recipe.json deep", "run.json: seen_from", "result.json: less")
    named = [one for one in found if one.name.startswith(begins)]
    drawn = random.Random(count).sample(found, count) + named[:: max(1, len(named) // count)]
    return [(damage, (whole / damage.file).read_bytes()) for damage in drawn]


def strictly(run: Path) -> None:
    """All that commands which stop at an error read."""
    recipe = runs.read_recipe(run)
    runs.bases(run)
    if (run / runs.RESULT).is_file():
        runs.read_result(run)
    found = runs.read(run, strict=True)
    assert found.recipe == recipe
    if found.embedded is not None:
        runs.read_test_images(found)


def test_damaged_run_folders(whole):
    raised, faults = 0, []
    for damage, before in some(whole, 120):
        damage.apply(whole)
        try:
            strictly(whole)
        except IsosphereError as error:
            raised += 1
            if Path(damage.file).name not in str(error) and not isinstance(error, NotARun):
                faults.append(f"{damage.name}: {error} does not name the file")
        except Exception as error:
            faults.append(f"{damage.name}: {error!r}")
        try:
            run = runs.read(whole)
            assert run.embedded or run.problems
        except Exception as error:
            faults.append(f"{damage.name}, lenient: {error!r}")
        (whole / damage.file).write_bytes(before)
    assert not faults, "\n".join(faults)
    assert raised > 30


def test_pages_of_damaged_runs_are_drawn(whole, tmp_path):
    for damage, before in some(whole, 1):
        damage.apply(whole)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert page.write_page([whole], tmp_path / "page.html").is_file(), damage.name
        (whole / damage.file).write_bytes(before)

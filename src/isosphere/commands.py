"""The commands that train and measure, each of which imports what it needs only when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isosphere.arguments import asked_for, free_folder, note, parse_changes, results_suffix, split_changes

if TYPE_CHECKING:
    from isosphere.inference import Trained

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1")]


def demo(
    out: Annotated[Path, typer.Option(help="where the run folders go")] = Path("runs"),
    steps: Annotated[int, typer.Option(help="length of each of the two runs; 0 is the recipe's")] = 0,
    device: Device = "auto",
) -> None:
    """Train the embedded data set without and with SEC, and compare them on classes never seen in training."""
    from isosphere.page import write_page
    from isosphere.paper.reproduce import run_many
    from isosphere.recipes import find
    from isosphere.tables import comparison, show

    changes = {"loop.snapshot_every": str(max(1, steps // 5) if steps else 200), "loop.snapshot_images": "0"}
    changes |= {"loop.steps": str(steps)} if steps else {}
    recipes = {free_folder(out, f"demo-{name}"): find(name, changes) for name in ("rendered", "rendered-sec")}
    show(comparison(run_many(recipes, device)))
    for folder in recipes:
        print(f"run folder: {folder}")
    page = write_page(list(recipes), free_folder(out, "demo-report", ".html"))
    print(f"open in a browser: {page}")


def train(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="a recipe's name, a folder of class folders, or a CSV")] = "",
    images: Annotated[str, typer.Argument(help="after a recipe's name: the images, its data.root")] = "",
    out: Annotated[Path | None, typer.Option(help="the run folder; by default a new one under runs/")] = None,
    resume: Annotated[Path | None, typer.Option(help="go on from the checkpoint in this run folder")] = None,
    device: Device = "auto",
) -> None:
    """Train your own images, or a recipe: `isosphere train ./my_photos`, `isosphere train photos ./my_photos`.

    The first is the recipe photos-sec, the second the one named, on these images. Any field can be changed:
    `--loss.margin 0.5`, `--loss Triplet`, `--seed 1`; `isosphere recipes NAME` shows all fields with their reasons.
    Under torchrun the batch is shared by all processes: `torchrun --nproc-per-node 2 -m isosphere train NAME`.
    """
    from isosphere import paper
    from isosphere.figures.words import named
    from isosphere.recipes import schema
    from isosphere.runs import read_recipe
    from isosphere.train.loop import fit
    from isosphere.train.state import missing_place, resumed_recipe

    # The command-line library takes fields to change, which it does not know, for arguments.
    words, changed = split_changes([*filter(None, (what, images)), *context.args])
    changes = parse_changes(changed)
    if resume is not None:
        if words or out is not None:
            told = " ".join(words) or "--out"
            raise ValueError(f"--resume {resume} goes on with that folder's own recipe: leave out {told}")
        recipe, folder = resumed_recipe(read_recipe(resume), changes, resume), resume
    else:
        name, recipe = named(*asked_for(words, changes), paper.ALL)
        if out is not None and out.exists():
            if not out.is_dir():
                raise ValueError(f"--out {out} is a file; name a folder for the run")
            if any(out.iterdir()):
                raise ValueError(f"{out} is not empty; choose another --out, or go on with --resume {out}")
        folder = out or free_folder(Path("runs"), f"{name}-seed{recipe.seed}")
    try:
        result = fit(recipe, folder, device, resume=resume is not None)
    except FileNotFoundError as error:
        field = "" if resume is None else missing_place(recipe.data)
        if not field:
            raise
        raise FileNotFoundError(f"{error}; say where it is now with --{field}") from error
    if result:
        from isosphere.tables import comparison, show

        show(comparison({folder: result}))
        print(f"run folder: {folder}")
        if isinstance(recipe.data, schema.Folder) and recipe.model.weights is None:
            note(f"{recipe.model.backbone} began from scratch; --model.backbone and --model.weights begin better")


def reproduce(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="table2, table3, table4, table5, table8, table9 or rates")],
    dataset: Annotated[str, typer.Option(help="cub200 cars196 sop inshop; casia lfw; cifar10 cifar100")] = "",
    losses: Annotated[list[str] | None, typer.Option(help="triplet semihard npair ms ...; arcface ...")] = None,
    arms: Annotated[list[str] | None, typer.Option(help="none l2reg sec sec-relative sec-ema ...")] = None,
    seeds: Annotated[list[int] | None, typer.Option(help="of the final runs, default 0; trials have their own")] = None,
    epochs: Annotated[int, typer.Option(help="table5: 100 or 200")] = 100,
    paper: Annotated[bool, typer.Option("--paper", help="as the authors trained, in place of the fair way")] = False,
    tune: Annotated[bool, typer.Option(help="table3, table5: tune rate and strength on held-out training data")] = True,
    tuned_by: Annotated[
        Path | None,
        typer.Option(help="no trials: rates and strengths of this results file's runs", exists=True, dir_okay=False),
    ] = None,
    results: Annotated[Path, typer.Option(help="folder of JSON files; what is there is not run")] = Path("results"),
    out: Annotated[Path, typer.Option(help="where the run folders go")] = Path("runs"),
    device: Device = "auto",
) -> None:
    """Run a whole table and print mean and spread over seeds: `isosphere reproduce table3 --dataset cub200`.

    Data and compilation are paid once. Every finished run is added to a JSON file in the results folder and is not
    run again; one that was stopped is resumed, one that was killed starts over. Fields of all recipes can be changed
    as in `train`: `--data.root data --data.pack packed --model.weights resnet50_msra.safetensors --loop.compile true`.
    """
    from isosphere.paper import reproduce as engine
    from isosphere.paper.tables import TUNED, Asked, cells, printed
    from isosphere.recipes import override
    from isosphere.tables import differences_table, printed_table, seeds_table, show

    given = parse_changes(context.args)
    changes = {"loop.save_every": "0"} | given
    asked = Asked(dataset, tuple(losses or ()), tuple(arms or ()), paper, epochs)
    chosen = {
        cell: {arm: override(recipe, changes) for arm, recipe in its.items()}
        for cell, its in cells(table, asked).items()
    }
    tuning = tune and table in TUNED and not paper
    if tuned_by is not None and not tuning:
        raise ValueError("--tuned-by stands for the trials of table3 and table5: leave out --paper and --no-tune")
    decided = [f"--{key}" for key in given if key.split(".")[0] in ("optimizer", "constraint")]
    if tuned_by is not None and decided:
        raise ValueError(f"--tuned-by decides optimizer and constraint: leave out {', '.join(decided)}")
    other = {key: value for key, value in given.items() if key not in engine.FREE}
    marks = ["paper"] * paper + ["untuned"] * (table in TUNED and not tuning and not paper)
    suffix = results_suffix(marks, other, tuned_by)
    name = f"{table}_{next(iter(chosen)).removeprefix('simclr-').split('-')[0]}{suffix}"
    held = engine.Results(results / f"{name}.json")
    source = engine.Results(tuned_by) if tuned_by else None
    records = engine.reproduce(chosen, dict.fromkeys(seeds or (0,)), tuning, held, out / name, device, source)
    show(seeds_table(records))
    differences = differences_table(records)
    if table in ("table3", "table4", "table5") and differences.rows:
        show(differences)
        others = [path for path in results.glob(f"{table}_*{suffix}.json") if path.stem.count("_") == name.count("_")]
        if len(others) > 1:
            every = [record for path in sorted(others) for record in engine.Results(path).finals()]
            show(differences_table(every, f"all of {', '.join(path.stem for path in sorted(others))}"))
    alike = "trained likewise" if paper and not other else "another protocol: not comparable with ours"
    for cell in chosen:
        metrics, rows = printed(table, cell)
        if rows:
            show(printed_table(metrics, rows, f"printed in the paper for {cell} ({alike})"))
    print(f"results: {held.path}")


def evaluate(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="a run folder")],
    data: Annotated[Path | None, typer.Option(help="another folder or CSV; of a given split its test part")] = None,
    probe: Annotated[bool, typer.Option("--probe", help="self-supervision: the linear probe at several rates")] = False,
    device: Device = "auto",
) -> None:
    """Measure a trained run on its test classes, or on other images.

    With --data it is retrieval among other images, for runs on faces and without labels, too, of which
    `--data.skip_unreadable true` leaves out what cannot be read. Of train/ and test/ folders, or a CSV with a split,
    only test images are measured. Fields of the data can be changed as in `train`:
    `isosphere evaluate RUN --data.pairs lfw --data.pairs_root DIR`.
    """
    from isosphere.tables import comparison, probe_table, show
    from isosphere.train.contrastive import RATES
    from isosphere.train.measure import measure_run, probe_run

    if context.args and not context.args[0].startswith("--"):
        raise ValueError(f"other images are named with --data {context.args[0]}")
    trained = _trained(run, device, context.args, others=data is not None)
    if probe:
        if data is not None:
            raise ValueError("--probe is taken on the run's own images: leave out --data")
        found, tested = probe_run(trained, RATES)
        show(probe_table(found, run.name, tested))
        return
    show(comparison({run: measure_run(trained, None if data is None else str(data))}))


def _trained(
    run: Path, device: str, words: list[str], fields: tuple[str, ...] = ("data.",), others: bool = False
) -> "Trained":
    """A trained run, for its own images or for others, of which only fields that begin so can be changed."""
    from dataclasses import replace

    from isosphere.inference import for_other_images, load_run
    from isosphere.recipes import override

    fixed = [word for word in words if word.startswith("--") and not word[2:].startswith(fields)]
    if fixed:
        told = ", ".join(f"--{field}" for field in fields) if len(fields) > 1 else "fields of --data"
        raise ValueError(f"{fixed[0]} is not for a trained run, of which this command changes {told} alone")
    trained = load_run(run, device)
    recipe = for_other_images(trained.recipe) if others else trained.recipe
    return replace(trained, recipe=override(recipe, parse_changes(words)))


def embed(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="a run folder")],
    images: Annotated[Path, typer.Argument(help="a folder of class folders, a flat folder of images, or a CSV")],
    out: Annotated[Path, typer.Option(help="the .npy file of embeddings; labels and paths are written beside it")],
    features: Annotated[bool, typer.Option("--features", help="the backbone's features, not embeddings")] = False,
    device: Device = "auto",
) -> None:
    """Write the raw embeddings of a folder of images: OUT.npy, OUT.labels.npy and OUT.paths.txt.

    A line of OUT.paths.txt is an image's path, a tab and its label. Of train, val and test all images are taken. They
    are seen as the run's test images are. Of a run without labels the features are what its probe is trained on.
    Faces are framed as those it was trained on, and their embeddings averaged with those of the mirror images;
    FOLDER:0.52 takes another share. `--data.skip_unreadable true` leaves out what cannot be read.
    """
    from isosphere.inference import embed_files

    if out.suffix != ".npy" or not out.parent.is_dir():
        raise ValueError(f"--out must be a .npy file in a folder that exists, not {out}")
    fields = ("data.skip_unreadable", "data.fraction", "data.align")
    for path in embed_files(_trained(run, device, context.args, fields, others=True), str(images), out, features):
        print(path)

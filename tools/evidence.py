"""Write the numbers of the docs from results/: `python tools/evidence.py`.

Each part of a page between `<!-- NAME -->` and `<!-- /NAME -->` is made by the function of that name in PARTS. With
`--check` nothing is written. The exit code is 1 if a part is not what the results say, or if a number outside of the
parts, or in README, has no source.
"""

import re
import sys

from evidence_parts import answers, faces, figures, heads, readme, retrieval, simclr, speed
from evidence_parts.common import ROOT
from evidence_parts.numbers import loose

PARTS = {
    "helps": answers.helps, "rates": answers.rates, "heads": answers.heads, "causes": answers.causes,
    "causes-tables": answers.causes_tables,
    "forms": answers.forms, "eta": answers.eta, "scratch": answers.scratch, "faces": answers.faces,
    "simclr": answers.simclr, "length": answers.length, "seeds": answers.spread_of_seeds,
    "heads-table": heads.heads_table,
    "tuned-cub200": lambda: retrieval.tuned("cub200"), "tuned-cars196": lambda: retrieval.tuned("cars196"),
    "pooled": retrieval.pooled, "printed": retrieval.printed, "remarks": retrieval.remarks,
    "five-rates": retrieval.five_rates, "best-rates": retrieval.best_rates, "longer": retrieval.longer,
    "characters": retrieval.characters, "characters-by-seed": retrieval.characters_by_seed,
    "small-scores": lambda: simclr.scores(simclr.SMALL), "small-norms": lambda: simclr.norms(simclr.SMALL),
    "large-scores": lambda: simclr.scores(simclr.LARGE), "large-norms": lambda: simclr.norms(simclr.LARGE),
    "hundred-scores": lambda: simclr.scores(simclr.HUNDRED), "hundred-norms": lambda: simclr.norms(simclr.HUNDRED),
    "small-differences": simclr.differences, "starts": simclr.starts, "warmup": simclr.warmup,
    "simclr-known": simclr.known, "trials": simclr.trials, "finalists": simclr.finalists, "others": simclr.others,
    "faces-scores": faces.scores, "faces-harm": faces.harm, "faces-auroc": faces.auroc,
    "faces-losses": faces.losses, "faces-weak": faces.weak, "faces-paper": faces.printed,
    "speed-losses": speed.losses, "speed-memory": speed.memory, "speed-steps": speed.steps, "speed-runs": speed.runs,
    "speed-metrics": speed.metrics, "speed-clusters": speed.clusters, "speed-heads": speed.heads,
    "speed-simclr": speed.simclr, "speed-starts": speed.starts, "speed-monitor": speed.monitor,
    "distributions": figures.distributions, "overtaken": figures.overtaken, "turns": figures.turns,
    "slopes": figures.slopes, "courses": figures.courses, "first-recalls": figures.first_recalls,
}  # fmt: skip
MARKED = re.compile(r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->", re.DOTALL)
NO_RESULTS = "paper_map.md"  # its decimals are sections of the paper
SETTINGS = {  # numbers of a guide that were set, or are others' defaults, or follow from either
    "guides/faces.md": "0.35 0.43 0.4 0.52 1 % 0.1 % 18.6",  # margins, frames, false accept rates, size in GB
    "guides/from_pml.md": "2.9 0.05 0.07 28.6 0.01",
    "guides/own_loop.md": "0.0 2.9 0.05 0.07 28.6 0.01",
    "guides/simclr.md": "0.9 0.07 7.143 3.571 1.79 2.8e-5",  # the authors' scale
    "concepts/forms.md": "2502.09252",  # a paper
}


def filled(text: str) -> str:
    """A page with its parts as the results have them."""
    return MARKED.sub(lambda match: f"<!-- {match[1]} -->\n{PARTS[match[1]]()}\n<!-- /{match[1]} -->", text)


def stray(name: str, text: str) -> list[str]:
    """Numbers of a page that stand in none of its parts and among no settings."""
    made = [match[0] for match in MARKED.finditer(text)]
    return loose(MARKED.sub("", text), [*made, SETTINGS.get(name, "")])


def main(check: bool) -> int:
    """Write or check the pages; returns the exit code."""
    problems = readme.check((ROOT / "README.md").read_text(encoding="utf-8"))
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix()
        before = page.read_text(encoding="utf-8")
        text = filled(before)
        if page.name != NO_RESULTS:
            problems += [f"{name}: {one} is in no results" for one in stray(name, text)]
        if check and text != before:
            problems.append(f"{name} is not what the results say; write it again: python tools/evidence.py")
        elif text != before:
            page.write_text(text, encoding="utf-8")
    if problems:
        print("\n".join(problems), file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))

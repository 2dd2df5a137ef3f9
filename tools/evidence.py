"""Write the numbers of docs/evidence from results/: `python tools/evidence.py`.

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
    "trials": simclr.trials, "finalists": simclr.finalists, "others": simclr.others,
    "faces-scores": faces.scores, "faces-harm": faces.harm, "faces-auroc": faces.auroc,
    "faces-losses": faces.losses, "faces-weak": faces.weak, "faces-paper": faces.printed,
    "speed-losses": speed.losses, "speed-memory": speed.memory, "speed-steps": speed.steps, "speed-runs": speed.runs,
    "speed-metrics": speed.metrics, "speed-clusters": speed.clusters, "speed-heads": speed.heads,
    "speed-simclr": speed.simclr, "speed-monitor": speed.monitor,
    "distributions": figures.distributions, "overtaken": figures.overtaken, "turns": figures.turns,
    "slopes": figures.slopes, "courses": figures.courses, "first-recalls": figures.first_recalls,
}  # fmt: skip
MARKED = re.compile(r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->", re.DOTALL)
NO_RESULTS = "paper_map.md"  # its decimals are sections of the paper


def filled(text: str) -> str:
    """A page with its parts as the results have them."""
    return MARKED.sub(lambda match: f"<!-- {match[1]} -->\n{PARTS[match[1]]()}\n<!-- /{match[1]} -->", text)


def stray(text: str) -> list[str]:
    """Numbers of a page that stand in none of its parts and among no settings."""
    return loose(MARKED.sub("", text), made=[match[0] for match in MARKED.finditer(text)])


def main(check: bool) -> int:
    """Write or check the pages; returns the exit code."""
    problems = readme.check((ROOT / "README.md").read_text(encoding="utf-8"))
    for page in sorted((ROOT / "docs" / "evidence").glob("*.md")):
        before = page.read_text(encoding="utf-8")
        text = filled(before)
        if page.name != NO_RESULTS:
            problems += [f"{page.name}: {one} is in no results" for one in stray(text)]
        if check and text != before:
            problems.append(f"{page.name} is not what the results say; write it again: python tools/evidence.py")
        elif text != before:
            page.write_text(text, encoding="utf-8")
    if problems:
        print("\n".join(problems), file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))

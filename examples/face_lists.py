"""Lists that training on LFW and identification need: python examples/face_lists.py LFW CFP [CELEBA]

LFW holds Name/Name_0001.jpg, CFP its Data/, CELEBA its identity_CelebA.txt with photographs anywhere below. Writes
LFW/exclude_cfp.txt    people of LFW with a name of CFP's list or one much alike, and four who have another name there
LFW/singles.csv        people of one photograph who are not on that list, as distractors
CFP/frontal.csv        frontal photographs, as probes
CELEBA/images.csv      photographs that are there, as distractors; their people are numbers, whom nobody can compare
"""

import sys
from difflib import get_close_matches
from pathlib import Path


def words(name: str) -> list[str]:
    return name.casefold().replace("_", " ").replace("-", " ").split()


def write(path: Path, rows: list[tuple[Path, str]]) -> None:
    lines = [f"{file.relative_to(path.parent)},{label}\n" for file, label in rows]
    path.write_text("path,label\n" + "".join(lines), encoding="utf-8")
    print(f"{path}: {len(rows)} photographs")


if len(sys.argv) < 3:
    sys.exit(print("usage:", __doc__.splitlines()[0].split(": ")[1], file=sys.stderr) or 2)
lfw, cfp, *celeba = map(Path, sys.argv[1:])
names = [line.strip() for line in (cfp / "Data" / "list_name.txt").read_text(encoding="utf-8").splitlines()]
people = {folder.name: sorted(folder.glob("*.jpg")) for folder in sorted(lfw.iterdir()) if folder.is_dir()}
letters, parts = {"".join(words(person)): person for person in people}, {person: {*words(person)} for person in people}
alike = {letters[near] for name in names for near in get_close_matches("".join(words(name)), letters, 5, 0.85)}
for own in map(set, map(words, names)):  # George Bush is George_W_Bush
    alike |= {person for person, its in parts.items() if len(own & its) > 1 and (own <= its or its <= own)}
alike |= people.keys() & {"Beyonce_Knowles", "Joseph_Biden", "Kevin_Costner", "Recep_Tayyip_Erdogan"}  # named otherwise
(lfw / "exclude_cfp.txt").write_text("\n".join(sorted(alike)) + "\n", encoding="utf-8")
print(f"{lfw / 'exclude_cfp.txt'}: {len(alike)} people of LFW: {', '.join(sorted(alike))}")
write(lfw / "singles.csv", [(files[0], who) for who, files in people.items() if len(files) == 1 and who not in alike])
write(cfp / "frontal.csv", [(file, file.parts[-3]) for file in sorted(cfp.glob("Data/Images/*/frontal/*.jpg"))])
for root in celeba:
    whose = dict(line.split() for line in (root / "identity_CelebA.txt").read_text(encoding="utf-8").splitlines())
    write(root / "images.csv", [(file, whose[file.name]) for file in sorted(root.rglob("*.jpg")) if file.name in whose])

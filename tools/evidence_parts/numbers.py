"""Which numbers of a text have no source: neither a part made from the results, nor a fact, nor a setting."""

import re
from collections.abc import Iterable

DECIMAL = r"[+-]?\d[\d,]*\.\d+(?:e-?\d+)?(?!\.?\w)"
WHOLE = r"[+-]?\d[\d,]*(?= (?:%|points\b|x\b(?! \d)))"
NUMBER = re.compile(rf"(?<![\w.,-])(?:{DECIMAL}|{WHOLE})")
HIDDEN = (r"^```.*?^```$", r"`[^`]*`", r"\]\([^)]*\)", r"^#.*$", r"^ *!\[.*$")  # code, targets of links, headings

# What was set and not measured, and what the paper says of its own setting.
SETTINGS = frozenset((
    "0.1", "0.25", "0.5",  # strengths
    "6.25e-6", "1.25e-5", "2.5e-5", "2.5e-3", "0.45", "2.8e-4",  # rates and weight decays
    "22.6",  # the radius of Table 11's norms, for relative SEC's eta
    "95 %", "86 %", "91 %",  # intervals: asked for, and how often they hold in tests/report/test_tables.py
    "3.10",  # Python
))  # fmt: skip


def visible(text: str) -> str:
    """The text without code, headings, pictures and targets of links, on one line."""
    for pattern in HIDDEN:
        text = re.sub(pattern, " ", text, flags=re.DOTALL | re.MULTILINE if "```" in pattern else re.MULTILINE)
    return " ".join(text.split())


def numbers(text: str) -> list[str]:
    """Decimals, and whole numbers of %, points or times."""
    return [match[0] + " %" * text[match.end() :].startswith(" %") for match in NUMBER.finditer(text)]


def loose(text: str, made: Iterable[str] = (), facts: Iterable[str] = ()) -> list[str]:
    """Numbers in prose that stand in no part that was made, in no fact and among no settings."""
    shown = visible(text)
    for fact in sorted(facts, key=len, reverse=True):
        shown = re.sub(rf"(?<![\d.+-]){re.escape(fact)}(?!\.?\d)", " ", shown)
    known = {one.lstrip("+") for part in made for one in numbers(part)} | SETTINGS
    return [one for one in numbers(shown) if one.lstrip("+") not in known]

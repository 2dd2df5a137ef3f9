"""The numbers in a text, so that tests assert these and not the words around them."""

import re


def numbers(text: str) -> list[str]:
    """The numbers that stand by themselves, as they are written: `R@1 63.5 %, not 60.5` has two."""
    return re.findall(r"(?<![\w@.+-])[+-]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[+-]\d+)?(?![\w])", text)

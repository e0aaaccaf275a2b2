"""Read the numbers of command lines, by one rule for all: what is not written as a number of its range is refused."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable

WHOLE = re.compile(r"[0-9]{1,20}")
DECIMAL = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
MOST = 10**9  # the largest number that is accepted


class NumberError(ArgumentTypeError, ValueError):
    """Say that a word is no number of its range, to argparse, cyclopts and pydantic."""


def whole(least: int = 1, most: int = MOST) -> Callable[[str], int]:
    """Return what reads a whole number of a range, written in digits alone."""

    def read(word: str) -> int:
        if not (WHOLE.fullmatch(word) and least <= int(word) <= most):
            raise NumberError(f"{word!r} is no whole number from {least} to {most}, in digits")
        return int(word)

    return read


def decimal(least: float = 1e-12, most: float = MOST) -> Callable[[str], float]:
    """Return what reads a number of a range, written with or without a point and an exponent."""

    def read(word: str) -> float:
        if not (DECIMAL.fullmatch(word) and least <= float(word) <= most):
            raise NumberError(f"{word!r} is no number from {least:g} to {most}, such as 2.5")
        return float(word)

    return read

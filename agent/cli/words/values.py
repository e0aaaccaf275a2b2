"""Values of options: each function reads one word, or says why it does not take it."""

import argparse
import math
import shlex
from pathlib import Path


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return value


def positive_int(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(text)


def whole(text: str) -> int:
    if not (text.isdecimal() and len(text) < 19):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def count(text: str) -> int:
    if not (text.isdecimal() and int(text) < 1000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 999")
    return int(text)


def seed(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {2**32 - 1}")
    return int(text)


def price(text: str) -> tuple[float, ...]:
    """Read the prices of input, of output and, if it is named, of input from a cache."""
    try:
        prices = tuple(float(part) for part in text.split(","))
    except ValueError:
        prices = ()
    if len(prices) not in (2, 3) or not all(0 <= usd < 1e6 for usd in prices):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not two prices, or three, in dollars for a million tokens, as in 1.25,10 or 1.25,10,0.125"
        )
    return prices


def agent_command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no command line ({error})") from error
    if not words:
        raise argparse.ArgumentTypeError("the command line is empty")
    return text


def dataset(text: str) -> str:
    """Return a dataset's name, or a path that holds in every folder."""
    from agent.lab.corpus import DATASETS

    return text if text in DATASETS else str(Path(text).expanduser().absolute())

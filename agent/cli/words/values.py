"""Values of options: each function reads one word, or says why it does not take it."""

import argparse
import math
import shlex


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


def count(text: str) -> int:
    if not (text.isdecimal() and int(text) < 1000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 999")
    return int(text)


def seed(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {2**32 - 1}")
    return int(text)


def price(text: str) -> tuple[float, float]:
    parts = [part.strip() for part in text.split(",")]
    try:
        usd_in, usd_out = (float(part) for part in parts)
    except ValueError:
        usd_in = usd_out = math.nan
    if not (0 <= usd_in < 1e6 and 0 <= usd_out < 1e6):
        raise argparse.ArgumentTypeError(f"{text!r} is not two prices, in dollars for a million tokens, as in 1.25,10")
    return usd_in, usd_out


def agent_command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no command line ({error})") from error
    if not words:
        raise argparse.ArgumentTypeError("the command line is empty")
    return text


def add_tag_word(words: argparse.ArgumentParser, told: str) -> None:
    """Take the tag of a night as a word, or by --tag as other commands do."""
    words.add_argument(
        "tag", nargs="?", default=argparse.SUPPRESS, metavar="TAG", help=told
    )  # else it would undo --tag
    words.add_argument("--tag", default=None, help=argparse.SUPPRESS)

"""What a language model or a coding agent finds as the author of edits, beside the search and the catalogue.

    python benchmarks/authors.py --out DIR --llm openai:gpt-5 --price 1.25,10 --nights 3 --experiments 20
    python benchmarks/authors.py --out DIR --llm openai:qwen3-coder@http://localhost:11434/v1 --price 0,0
    python benchmarks/authors.py --out DIR --command "claude -p" --agent-minutes 10
    python benchmarks/authors.py --report DIR
    python benchmarks/authors.py --quick

Every night is the real command line in a clone of this tree, as in real_nights.py. The arms author, search and
catalogue have the same corpus, budget, device and seeds, and the same number of experiments; what proposes is all that
differs. Where an author or the catalogue has no idea, the search steps in, and the table of sources says how often.
Time is not equal: what the author takes to answer comes on top. A key is read from the environment, as `nightshift run`
reads it. See real_nights.py for --slots, for cuts, and for what recorded, honest and the intervals mean.

Without an author, --quick tests this program itself: a scripted server on this machine answers, which turns one dial of
a toy script. That measures no model, and its output says so.

Flat keys of --json: all of real_nights.py, with the arms author, search and catalogue; author_over_catalogue with _low
and _high; author, the model or the agent's program; self_test, 1 where the scripted server answered; and for each ARM
ARM_calls, ARM_failed_calls, ARM_asking_hours, ARM_tokens_in, ARM_tokens_cached, ARM_tokens_out, ARM_usd. Tokens and
dollars are of the calls that told them.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import measure
import real_nights
import real_outcomes

from agent.errors import NightError
from agent.experiment import Ask
from agent.proposers.registry import check_sources
from agent.records.journal import Journal
from agent.records.terms import as_words, opened

AUTHOR, OTHERS = "author", ("search", "catalogue")
TERMS = (
    "llm",
    "llm_url",
    "price",
    "max_cost",
    "agent",
    "agent_minutes",
)  # of nightshift run, that say who the author is
SCRIPTED = "scripted-server"
NEXT_SHARPNESS = 0.05  # how far the scripted server turns its dial in each answer


# ---- who the author is -----------------------------------------------------------------------------------------------


def prices(text: str) -> tuple[float, ...]:
    """Return dollars for a million tokens in, out and, if named, cached."""
    found = tuple(float(part) for part in text.split(","))
    if len(found) not in (2, 3):
        raise argparse.ArgumentTypeError(f"{text!r} is not two prices, or three, as in 1.25,10")
    return found


def asked_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the terms of the author's nights; raise NightError or MachineError for an author that cannot be asked."""
    named = {name: getattr(args, name) for name in TERMS if getattr(args, name) is not None}
    asked = {"proposer": "llm" if args.llm else "command", **named}
    check_sources(opened(asked), asked)
    return asked


def name_of(args: argparse.Namespace) -> str:
    """Return the author's name for tables: no address and no words of a command line, which may be private."""
    return re.split("@https?://", args.llm)[0] if args.llm else Path(shlex.split(args.agent)[0]).name


@contextmanager
def scripted_server() -> Iterator[str]:
    """Serve a language model that only turns a dial of the toy script, and yield its --llm SPEC."""
    sys.path.insert(0, str(measure.ROOT / "tests"))
    import llm_servers

    turns = count(1)

    def turn(request: llm_servers.Request, handler: llm_servers.Handler) -> None:
        line = re.search(r"(?m)^SHARPNESS = .*$", request.text)
        assert line is not None, "the scripted server knows the toy script alone: leave --script out"
        value = 0.5 + NEXT_SHARPNESS * next(turns)
        other = re.sub(r"= by_device\(.*?\)|= [\d.]+", f"= {value:g}", line[0], count=1)
        edit = f"<<<<<<< SEARCH\n{line[0]}\n=======\n{other}\n>>>>>>> REPLACE\n"
        said = f"TITLE: SHARPNESS {value:g}\nHYPOTHESIS: A script answers.\nFILE: train_mlx.py\n{edit}"
        llm_servers.says(said)(request, handler)

    with llm_servers.Server(turn) as server:
        yield server.spec("openai", SCRIPTED)


# ---- what the asking cost --------------------------------------------------------------------------------------------


def asks_of(folder: Path, tag: str) -> tuple[Ask, ...] | None:
    """Return all calls of a night; None where its journal is gone, since its record does not hold them."""
    journal = folder / "work" / tag / "experiments" / "nights" / tag / "journal.sqlite"
    if not journal.exists():
        return None
    try:
        with Journal.read(journal) as night:
            return night.asks()
    except NightError:
        return None


def flatten(folder: Path, author: str | None = None) -> measure.Flat:
    """Return real_nights.py's keys with those of the author's costs; author: None where the calls have to tell it."""
    nights = real_outcomes.read_all(folder)
    flat, arms = real_outcomes.flatten(nights), real_outcomes.by_arm(nights)
    calls = (ask for one in arms.get(AUTHOR, ()) for ask in asks_of(folder, one.tag) or ())
    author = author or next((ask.model for ask in calls if ask.model), None)
    flat |= {"author": author, "self_test": int(SCRIPTED in (author or ""))}
    if {AUTHOR, "catalogue"} <= arms.keys():
        gains = [real_outcomes.honest_of(arms[arm]) for arm in (AUTHOR, "catalogue")]
        real_outcomes.put(flat, f"{AUTHOR}_over_catalogue", real_outcomes.over(*gains))
    for arm, mine in arms.items():
        known = [asks for one in mine if (asks := asks_of(folder, one.tag)) is not None]
        flat |= costs(arm, [ask for asks in known for ask in asks]) if len(known) == len(mine) else {}
    return flat


def costs(arm: str, asks: Sequence[Ask]) -> measure.Flat:
    return {
        f"{arm}_calls": len(asks),
        f"{arm}_failed_calls": sum(ask.failure is not None for ask in asks),
        f"{arm}_asking_hours": sum(ask.wall_s for ask in asks) / 3600,
        f"{arm}_tokens_in": total(ask.tokens_in for ask in asks),
        f"{arm}_tokens_cached": total(ask.tokens_cached for ask in asks),
        f"{arm}_tokens_out": total(ask.tokens_out for ask in asks),
        f"{arm}_usd": total(ask.usd for ask in asks),
    }


def total(told: Iterable[float | None]) -> float | None:
    known = [one for one in told if one is not None]
    return sum(known) if known else None


def show(folder: Path, flat: measure.Flat) -> None:
    """Print real_nights.py's tables, and what the asking cost in each arm."""
    if flat["self_test"]:
        measure.say("self-test: a scripted server has answered, no model: the figures tell of this program alone")
    real_nights.show(folder, flat)
    arms = [arm for arm in (AUTHOR, *OTHERS) if flat.get(f"{arm}_calls") is not None]
    head = (
        "arm",
        "calls",
        "failed",
        "hours of asking",
        "tokens in",
        "of a cache",
        "out",
        "$",
        "honest, over catalogue",
    )
    title = f"What the asking cost; the author is {flat['author'] or 'not known here'}"
    measure.print_table(title, head, [cost_row(flat, arm) for arm in arms])


def cost_row(flat: measure.Flat, arm: str) -> list[str]:
    forms = {
        "calls": ",.0f", "failed_calls": ",.0f", "asking_hours": ".2f", "tokens_in": ",.0f", "tokens_cached": ",.0f",
        "tokens_out": ",.0f", "usd": ",.2f",
    }  # fmt: skip
    told = [measure.show(flat[f"{arm}_{name}"], form) for name, form in forms.items()]
    return [arm, *told, real_outcomes.between(flat, f"{arm}_over_catalogue")]


# ---- command line ----------------------------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = real_nights.nights_parser(__doc__)
    who = parser.add_argument_group("the author: a language model or a coding agent, as `nightshift run` takes it")
    who.add_argument("--llm", metavar="SPEC", help="PROVIDER:MODEL[@URL]")
    who.add_argument("--llm-url", metavar="URL", help="where the model is served, if not in SPEC")
    who.add_argument("--price", type=prices, metavar="IN,OUT[,CACHED]", help="in dollars for a million tokens")
    who.add_argument("--max-cost", type=float, metavar="USD", help="of each night")
    who.add_argument("--command", dest="agent", metavar="CMD", help="a coding agent's command line")
    who.add_argument("--agent-minutes", type=float, metavar="M", help="for one edit of the agent")
    args = real_nights.completed(parser, parser.parse_args(argv), {"experiments": 12}, {})
    args.arms = [(arm, None) for arm in (AUTHOR, *OTHERS)]
    if args.llm and args.agent:
        parser.error("--llm and --command name two authors: compare one at a time")
    if args.report is None and not (args.quick or args.llm or args.agent):
        parser.error("name the author: --llm SPEC or --command CMD")
    return args


def run(args: argparse.Namespace) -> int:
    args.show, args.flatten = show, flatten
    if args.report is not None:
        return real_nights.run(args)
    if args.llm or args.agent:
        return run_with(args)
    with scripted_server() as spec:
        args.llm, args.price = spec, (1.0, 10.0)
        return run_with(args)


def run_with(args: argparse.Namespace) -> int:
    args.words = {AUTHOR: as_words(asked_of(args))}
    args.flatten = partial(flatten, author=name_of(args))
    return real_nights.run(args)


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("authors", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())

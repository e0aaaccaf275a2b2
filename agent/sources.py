"""Where a night's ideas come from, by the options of the command line: checked before it opens, built when it has."""

import argparse
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from agent.caps import caps_of_machine
from agent.errors import NightError
from agent.experiment import Ask, History, Night, Proposer
from agent.journal import Journal
from agent.opening import Place
from agent.proposers.chat import MAX_TOKENS, Patience
from agent.proposers.checked import Checked
from agent.proposers.command import Command, split
from agent.proposers.llm import LLM, Price
from agent.proposers.mix import Fallback, Mix
from agent.proposers.queue import Queue
from agent.screen import Screen
from agent.stop import Stop

NEEDS = {
    "llm": "--llm SPEC, as in: nightshift run --proposer llm --llm openai:gpt-5",
    "command": "--command CMD, as in: nightshift run --proposer command --command 'claude -p'",
}


def check_sources(options: argparse.Namespace) -> None:
    """Raises NightError for a source that lacks what it needs or is never asked, MachineError for a missing SDK."""
    given = {"llm": options.llm, "command": options.agent}
    for name, value in given.items():
        if options.proposer == name and value is None:
            raise NightError(f"--proposer {name} needs {NEEDS[name]}")
        if value is not None and options.proposer not in (name, "mix"):
            raise NightError(f"--{name} is set, but --proposer {options.proposer} asks it nothing; use {name} or mix")
    of_models = {"--price": options.price, "--max-cost": options.max_cost, "--llm-url": options.llm_url}
    of_models |= {"--llm-max-tokens": options.llm_max_tokens, "--llm-stream": options.llm_stream}
    named = next((name for name, value in of_models.items() if value), None)
    if options.llm is None and named is not None:
        raise NightError(f"{named} is about a language model; name it with {NEEDS['llm']}")
    if options.agent is not None:
        split(options.agent)
    if options.llm is not None:
        _llm(options, lambda ask: None, lambda: False)


def source_of(options: argparse.Namespace, place: Place) -> Callable[[Night, Journal, Stop, Screen], Proposer]:
    """What open_lab builds the proposer with."""

    def build(night: Night, journal: Journal, stop: Stop, screen: Screen) -> Proposer:
        makers: Mapping[str, Callable[[], Proposer]] = {
            "queue": lambda: Queue(place.queue, place.nights, screen.said),
            "llm": lambda: _llm(options, journal.record_ask, lambda: stop.after_run),
            "command": lambda: _command(options, place.folder(night.tag), journal.record_ask, stop, screen),
            "search": lambda: search_of(place, night),
        }
        set_up = {"queue", "search"} | ({"llm"} if options.llm else set()) | ({"command"} if options.agent else set())
        wanted = set_up if options.proposer == "mix" else {options.proposer, "search"}
        sources = {name: Checked(make(), place.script) for name, make in makers.items() if name in wanted}
        if options.proposer == "mix":
            return Mix(sources, f"{night.tag} {night.seed}")
        # whatever fails, the night goes on
        return Fallback(sources, screen.said) if len(sources) > 1 else sources["search"]

    return build


def search_of(place: Place, night: Night) -> Proposer:
    """Another night tries other things first, having learnt from those before it."""
    from agent.proposers.search import Search  # SciPy takes a third of a second to import; a refusal does without

    # a GPU's own memory is not the machine's: there the script itself refuses what cannot fit, in seconds
    limit_gb = None if night.device_kind == "cuda" else caps_of_machine().memory_bytes / 1e9
    seed = f"{night.tag} {night.seed}"
    return Search(night.device_kind, seed, earlier=earlier_nights(place, night), memory_limit_gb=limit_gb)


def earlier_nights(place: Place, night: Night) -> list[History]:
    """Of the same protocol and device, the one that was last at work last; what cannot be read teaches nothing."""
    found: list[History] = []
    for tag in place.tags():
        with suppress(NightError), Journal.read(place.journal(tag)) as journal:
            other = journal.night()
            if tag != night.tag and (other.protocol, other.device) == (night.protocol, night.device):
                found.append(journal.attempts())
    return found


def _llm(options: argparse.Namespace, record: Callable[[Ask], None], stopped: Callable[[], bool]) -> LLM:
    return LLM(
        options.llm,
        record,
        url=options.llm_url,
        stopped=stopped,
        price=Price(*options.price) if options.price else None,
        max_usd=options.max_cost,
        patience=Patience(max_tokens=options.llm_max_tokens or MAX_TOKENS),
        stream=options.llm_stream,
    )


def _command(
    options: argparse.Namespace, folder: Path, record: Callable[[Ask], None], stop: Stop, screen: Screen
) -> Command:
    return Command(
        options.agent,
        folder,
        record,
        lambda: stop.after_run,  # nothing else is going on meanwhile
        limit_s=60 * options.agent_minutes,
        tick=lambda elapsed_s: screen.progressed(None, elapsed_s),
    )

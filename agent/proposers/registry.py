"""Where a night's ideas come from, by the options of the command line: checked before it opens, built when it has."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.errors import NightError
from agent.experiment import Ask, History, Night, Proposer
from agent.invocation import typed
from agent.proposers.ahead import Outbox
from agent.proposers.checked import Checked
from agent.proposers.command.command import Command, split
from agent.proposers.llm.chat import MAX_TOKENS, Patience
from agent.proposers.llm.llm import LLM, Price
from agent.proposers.mix import Fallback, Mix
from agent.proposers.queue import Queue
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.terms import OF_THE_MODEL, Terms
from agent.sandbox.environment import SECRET_WORDS
from agent.sandbox.limits import limits_of_machine

ASSIGNMENT = re.compile(r"\b([A-Z_][A-Z0-9_]*)=(?=[^\s=]*[^\d\s=])(?=[^\s=]{8})")  # NAME=value, as after env
KEY = re.compile(r"\bsk-[\w-]{16,}")  # as providers write theirs


def check_sources(terms: Terms, asked: Mapping[str, Any]) -> None:
    """Raises NightError for a source that lacks what it needs or is never asked, MachineError for a missing SDK.

    Of what is asked for in this call; what the night has besides may rest.
    """
    for name, value in (("llm", terms.llm), ("command", terms.agent)):
        given = asked.get("agent" if name == "command" else name) is not None
        if terms.proposer == name and value is None:
            raise NightError(f"--proposer {name} needs {_needs(name)}")
        if given and terms.proposer not in (name, "mix"):
            raise NightError(f"--{name} is set, but --proposer {terms.proposer} asks it nothing; use {name} or mix")
    named = next((name for name in (*OF_THE_MODEL, "max_cost") if asked.get(name)), None)
    if terms.llm is None and named is not None:
        raise NightError(f"--{named.replace('_', '-')} is about a language model; name it with {_needs('llm')}")
    if terms.agent is not None and terms.proposer in ("command", "mix"):
        _check_keyless(split(terms.agent))
    if terms.llm is not None and terms.proposer in ("llm", "mix"):
        model_of(terms, lambda ask: None, lambda: False)


def _needs(proposer: str) -> str:
    option, example = ("--llm SPEC", "openai:gpt-5") if proposer == "llm" else ("--command CMD", "claude -p")
    return f"{option}, as in: {typed('run', '--proposer', proposer, f'--{proposer}', example)}"


def _check_keyless(words: list[str]) -> None:
    """The command line is kept in the journal, and every process of the machine may read it."""
    for word in words:
        for found in (*ASSIGNMENT.finditer(word), *KEY.finditer(word)):
            name = found[1] if found.re is ASSIGNMENT else "sk-"
            if name == "sk-" or any(secret in name.upper() for secret in SECRET_WORDS):
                raise NightError(
                    f"--command holds what looks like a key ({name}…), which the journal would keep; export it "
                    f"instead: the agent has your environment"
                )


def source_of(place: Place) -> Callable[[Night, Outbox], Proposer]:
    """What builds the proposer of a night by its terms."""

    def build(night: Night, outbox: Outbox) -> Proposer:
        terms = Terms.from_json(night.terms)
        makers: Mapping[str, Callable[[], Proposer]] = {
            "queue": lambda: Queue(place.queue, place.nights, outbox.said),
            "llm": lambda: model_of(terms, outbox.record_ask, outbox.stopped, outbox.said),
            "command": lambda: _command(terms, place.folder(night.tag), outbox),
            "search": lambda: search_of(place, night),
        }
        set_up = {"queue", "search"} | ({"llm"} if terms.llm else set()) | ({"command"} if terms.agent else set())
        wanted = set_up if terms.proposer == "mix" else {terms.proposer, "search"}
        sources = {name: Checked(make(), place.script) for name, make in makers.items() if name in wanted}
        if terms.proposer == "mix":
            return Mix(sources, f"{night.tag} {night.seed}")
        # whatever fails, the night goes on
        return Fallback(sources, outbox.said) if len(sources) > 1 else sources["search"]

    return build


def patience_s(terms: Terms) -> float:
    """How long one call to a source may take, the slowest of those that may be asked; search and queue take none."""
    agent_s = 60 * terms.agent_minutes if terms.agent and terms.proposer in ("command", "mix") else 0.0
    return max(agent_s, Patience().ask_s if terms.llm and terms.proposer in ("llm", "mix") else 0.0)


def search_of(place: Place, night: Night) -> Proposer:
    """Another night tries other things first, having learnt from those before it."""
    from agent.proposers.search.search import (
        Search,  # SciPy takes a third of a second to import; a refusal does without
    )

    # a GPU's own memory is not the machine's: there the script itself refuses what cannot fit, in seconds
    limit_gb = None if night.device_kind == "cuda" else limits_of_machine().memory_bytes / 1e9
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


def model_of(
    terms: Terms,
    record: Callable[[Ask], None],
    stopped: Callable[[], bool],
    say: Callable[[str], None] = lambda sentence: None,
) -> LLM:
    llm = LLM(
        terms.llm or "",
        record,
        url=terms.llm_url,
        stopped=stopped,
        price=Price(*terms.price) if terms.price else None,
        max_usd=terms.max_cost,
        patience=Patience(max_tokens=terms.llm_max_tokens or MAX_TOKENS),
        stream=terms.llm_stream,
    )
    if llm.warning is not None:
        say(llm.warning)
    return llm


def _command(terms: Terms, folder: Path, outbox: Outbox) -> Command:
    return Command(terms.agent or "", folder, outbox.record_ask, outbox.stopped, limit_s=60 * terms.agent_minutes)

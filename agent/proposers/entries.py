"""The sources whose packages lie below this one: search, catalogue, language model and coding agent."""

import re
from collections.abc import Callable
from functools import partial

from agent.errors import NightError
from agent.experiment import Ask
from agent.proposers.briefing import Proposer
from agent.proposers.catalogue.catalogue import Catalogue
from agent.proposers.catalogue.evidence import SOURCE
from agent.proposers.command.command import Command, split
from agent.proposers.llm.chat import MAX_TOKENS, Patience
from agent.proposers.llm.llm import LLM, Price
from agent.proposers.llm.prompt import AskMode
from agent.proposers.mix import USUAL, Prior
from agent.proposers.search.search import Search
from agent.proposers.source import Need, Source, Surroundings
from agent.proposers.waiting import FurtherFirst, Waiting
from agent.records.terms import OF_THE_MODEL, Terms
from agent.sandbox.environment import SECRET_WORDS
from agent.script.dials import searched

ASSIGNMENT = re.compile(r"\b([A-Z_][A-Z0-9_]*)=(?=[^\s=]*[^\d\s=])(?=[^\s=]{8})")  # NAME=value, as after env
KEY = re.compile(r"\bsk-[\w-]{16,}")  # as providers write theirs
CALLS_AT_ONCE = 4  # to a language model: providers limit the rate, and a server at home is slower with more

# ---- search ----------------------------------------------------------------------------------------------------------


def search_of(around: Surroundings) -> Proposer:
    """Build a search that has learnt from earlier nights, and so tries other things first than they did."""
    night = around.night
    return Search(night.device_kind, f"{night.tag} {night.seed}", earlier=around.past)


# The judge takes one edit in four for a gain before it has seen any (belief.PRIOR), and a turn of dials is no better
# than others: near a tuned start, nine in a row on an H200 were losses. An idea of the catalogue was a gain elsewhere.
SEARCH = Source(
    "search",
    "turns dials, needs no key",
    search_of,
    check_script=searched,
    last=True,
    is_free=True,
    prior=Prior(4.0),
)

# ---- the catalogue ---------------------------------------------------------------------------------------------------


def catalogue_of(around: Surroundings) -> Proposer:
    return Catalogue(around.place.script_path, around.past, around.outbox.said)


CATALOGUE = Source(SOURCE, "known ideas, one patch each in ideas/, needs no key", catalogue_of, is_free=True)

# ---- a language model ------------------------------------------------------------------------------------------------


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


def _modes_of(around: Surroundings) -> dict[str, Proposer]:
    """Build one model with a proposer for each mode of asking; further ideas are common to them."""
    outbox = around.outbox
    llm = model_of(around.terms, outbox.record_ask, outbox.stopped, outbox.said)
    waiting = Waiting(around.place.folder(around.night.tag), outbox.claims, outbox.said)
    return {mode.value: FurtherFirst(partial(llm.ideas, mode=mode), llm.source_of(mode), waiting) for mode in AskMode}


def _check_model(terms: Terms) -> None:
    model_of(terms, lambda ask: None, lambda: False)


MODEL = Source(
    "llm",
    "a language model",
    _modes_of,
    Need("llm", "SPEC", "openai:gpt-5", "a language model", details=(*OF_THE_MODEL, "max_cost")),
    check=_check_model,
    patience_s=lambda terms: Patience().ask_s,
    at_once=CALLS_AT_ONCE,
    repairs=True,
    # Ideas unlike all others fail more often than the next step. But agents do not explore unless they are told to, and
    # early in a night an idea that works has the most time to be built on.
    modes={AskMode.EDIT.value: USUAL, AskMode.EXPLORE.value: Prior(3.0, 2), AskMode.COMBINE.value: Prior(3.0)},
)

# ---- a coding agent --------------------------------------------------------------------------------------------------


def _agent_of(around: Surroundings) -> Command:
    return Command(
        around.terms.agent or "",
        around.place.folder(around.night.tag),
        around.outbox.record_ask,
        around.outbox.stopped,
        limit_s=60 * around.terms.agent_minutes,
    )


def _check_keyless(terms: Terms) -> None:
    """Refuse a key: the journal keeps the command line, and every process of the machine may read it."""
    for word in split(terms.agent or ""):
        for found in (*ASSIGNMENT.finditer(word), *KEY.finditer(word)):
            name = found[1] if found.re is ASSIGNMENT else "sk-"
            if name == "sk-" or any(secret in name.upper() for secret in SECRET_WORDS):
                raise NightError(
                    f"--command holds what looks like a key ({name}…), which the journal would keep; export it "
                    f"instead: the agent has your environment"
                )


AGENT = Source(
    "command",
    "any coding agent",
    _agent_of,
    Need("agent", "CMD", "claude -p", "a coding agent"),
    check=_check_keyless,
    patience_s=lambda terms: 60 * terms.agent_minutes,
    at_once=None,
    repairs=True,
)

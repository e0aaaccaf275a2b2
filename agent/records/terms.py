"""The terms of a night: how it judges, what it lets scripts do, and where its ideas come from.

They are options of the command line that hold from the first call on: the journal keeps them, and who goes on with the
night repeats none. No key is among them.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from agent.errors import NightError
from agent.judging.judge import PLAUSIBLE_GAIN

# What is not given stays as the night has it. What is given and differs is refused where verdicts depend on it: those
# before and after would not compare. Of the others the night takes it, and keeps it from then on.
FIXED = ("judge", "confirm", "plausible_gain", "allowance_s")
OF_THE_MODEL = ("llm_url", "price", "llm_max_tokens", "llm_stream")
SANDBOXES = ("off", "auto", "require")  # each promises more than the one before it


@dataclass(frozen=True, slots=True)
class Terms:
    """Each is the option of its name; where the option is not given, a night opens with what stands here."""

    judge: str = "balanced"
    confirm: int = 0
    plausible_gain: float = 100 * PLAUSIBLE_GAIN  # percent
    allowance_s: float | None = None  # None: learnt
    sandbox: str = "auto"
    early_stop: bool = False
    dry_run: bool = True
    proposer: str = "search"
    llm: str | None = None
    llm_url: str | None = None
    price: tuple[float, float] | None = None  # dollars for a million tokens, in and out
    llm_max_tokens: int | None = None
    llm_stream: bool = False
    max_cost: float | None = None  # dollars
    agent: str | None = None  # --command
    agent_minutes: float = 10.0

    @classmethod
    def from_json(cls, text: str) -> "Terms":
        """Raises NightError for what as_json() never wrote."""
        try:
            facts = json.loads(text)
            return cls(**facts | ({"price": tuple(facts["price"])} if facts.get("price") else {}))
        except (TypeError, ValueError, AttributeError) as error:
            raise NightError(f"the night's terms are damaged ({error}); begin another one with --tag") from error

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The terms that this command line names."""
    named = {field.name: getattr(options, field.name, None) for field in fields(Terms)}
    return {name: value for name, value in named.items() if value is not None}


def opened(asked: Mapping[str, Any]) -> Terms:
    """Of a new night."""
    return _checked(Terms(**asked))


def resumed(tag: str, before: Terms, asked: Mapping[str, Any]) -> Terms:
    """Of a night that goes on; raises NightError for what cannot change while it does."""
    for name in FIXED:
        if name in asked and asked[name] != getattr(before, name):
            raise NightError(
                f"night {tag} has {spelled(before, name)}, not {spelled(Terms(**asked), name)}; leave the option out "
                f"to resume it, or choose another --tag"
            )
    if "sandbox" in asked and SANDBOXES.index(asked["sandbox"]) < SANDBOXES.index(before.sandbox):
        raise NightError(
            f"night {tag} has --sandbox {before.sandbox}, and --sandbox {asked['sandbox']} would promise less; leave "
            f"the option out to resume it, or choose another --tag"
        )
    # another model has another price and another server
    old = replace(before, **_default(OF_THE_MODEL)) if asked.get("llm", before.llm) != before.llm else before
    return _checked(replace(old, **asked))


def changes(before: Terms, now: Terms) -> list[str]:
    """What a night that goes on does otherwise from now on, option by option."""
    differ = (field.name for field in fields(Terms) if getattr(before, field.name) != getattr(now, field.name))
    return [f"{spelled(now, name)} (it was {spelled(before, name)})" for name in differ]


def as_words(asked: Mapping[str, Any]) -> list[str]:
    """Terms as they are given on a command line."""
    words: list[str] = []
    for name, value in asked.items():
        option = "--command" if name == "agent" else f"--{name.replace('_', '-')}"
        match value:
            case bool():
                words.append(option if value else option.replace("--", "--no-", 1))
            case tuple():
                words += [option, ",".join(f"{one:g}" for one in value)]
            case float():
                words += [option, f"{value:g}"]
            case _:
                words += [option, str(value)]
    return words


def spelled(terms: Terms, name: str) -> str:
    """One of the terms, for a sentence."""
    value = getattr(terms, name)
    option, *rest = as_words({name: value})
    return f"no {option}" if value is None else " ".join([option, *rest])


def _default(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(Terms(), name) for name in names}


def _checked(terms: Terms) -> Terms:
    if terms.confirm and terms.judge != "greedy":
        raise NightError(f"--confirm is for --judge greedy; {terms.judge} decides by itself how often to measure")
    return terms

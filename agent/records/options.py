"""The options of a night: how it judges, what it lets scripts do, and where its ideas come from.

They are those of the command line that hold from the first call on. The journal keeps them, so a command that resumes
the night repeats none of them. No key is among them.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from agent.errors import NightError
from agent.experiment import Options
from agent.judging.judges import JUDGES
from agent.text import one_line, plainly

# An option that is not given stays as the night has it. Verdicts depend on these, and those before and after a change
# would not compare: another value is refused. The night takes another value of any other option, and keeps it.
FIXED = ("judge", "confirm", "plausible_gain", "allowance_s", "limit_s", "metric")
OF_REPORTED = ("read", "python")  # options of scripts that report their own score
OF_SCORED = ("plausible_gain", "early_stop", "dry_run")  # options of scripts that nightshift scores
OF_THE_MODEL = ("price", "llm_max_tokens")
METRIC_CHARS = 60  # of a name
SANDBOXES = ("off", "auto", "require")  # each promises more than the one before it


def opened(asked: Mapping[str, Any]) -> Options:
    """Return the options of a new night; raise NightError for a clash."""
    return _checked(Options(**asked), asked)


def resumed(tag: str, before: Options, asked: Mapping[str, Any]) -> Options:
    """Return the options of a resumed night; raise NightError for a change that it cannot take."""
    now = replace(before, **asked)
    is_weaker = SANDBOXES.index(now.sandbox) < SANDBOXES.index(before.sandbox)
    for name in (*FIXED, *(["sandbox"] if is_weaker else [])):
        if getattr(now, name) != getattr(before, name):
            raise kept_as_it_is(tag, spelled(before, name), spelled(now, name))
    # another model has another price and another server
    gone: tuple[str, ...] = OF_THE_MODEL if now.llm != before.llm else ()
    if now.pool == "local":
        gone += ("ray_address",)  # no option takes it back
    return _checked(replace(now, **{name: getattr(Options(), name) for name in gone if name not in asked}), asked)


def kept_as_it_is(tag: str, kept: str, asked: str) -> NightError:
    """Return the refusal to go on with another option: scores before and after it would not compare."""
    return NightError(
        f"night {tag} has {kept}, not {asked}; leave the option out to resume it, or choose another --tag"
    )


def changes(before: Options, now: Options) -> list[str]:
    """List the options that a night changes from now on, each with its old value."""
    differ = (field.name for field in fields(Options) if getattr(before, field.name) != getattr(now, field.name))
    return [f"{spelled(now, name)} (it was {spelled(before, name)})" for name in differ]


def as_words(asked: Mapping[str, Any]) -> list[str]:
    """Write options as words of a command line."""
    words: list[str] = []
    for name, value in asked.items():
        option = option_of(name)
        match value:
            case bool():
                words.append(option if value else option.replace("--", "--no-", 1))
            case tuple() if name == "read":
                words += [word for path in value for word in (option, path)]
            case tuple():
                words += [option, ",".join(map(plainly, value))]
            case float():
                words += [option, plainly(value)]
            case _:
                words += [f"{option}={value}"] if name == "metric" else [option, str(value)]
    return words


def option_of(name: str) -> str:
    """Return the command line's option for a field of Options."""
    return "--command" if name == "agent" else f"--{name.replace('_', '-')}"


def spelled(options: Options, name: str) -> str:
    """Write one of the options for a sentence."""
    value = getattr(options, name)
    return f"no {option_of(name)}" if value is None else " ".join(as_words({name: value}))


def _checked(options: Options, asked: Mapping[str, Any]) -> Options:
    if options.judge not in JUDGES:
        raise NightError(f"there is no judge {options.judge} here; choose from {', '.join(JUDGES)}")
    if options.confirm and options.judge != "greedy":
        raise NightError(f"--confirm is for --judge greedy; {options.judge} decides by itself how often to measure")
    if options.metric is None:
        for name in OF_REPORTED:
            if getattr(options, name):
                raise NightError(
                    f"{spelled(options, name)} is for a script that prints its own score; add --metric NAME"
                )
    else:
        _check_metric(options, asked)
    if options.limit_s is not None and options.allowance_s is not None:
        raise NightError(f"{spelled(options, 'limit_s')} is in place of --allowance-s; leave one of them out")
    if options.ray_address is not None and options.pool != "ray":
        raise NightError(f"--ray-address {options.ray_address} is for --pool ray; add that, or leave the address out")
    return options


def _check_metric(options: Options, asked: Mapping[str, Any]) -> None:
    """Raise NightError for a name that no line can have, and for what only nightshift's own score allows."""
    metric = str(options.metric)
    name = metric.removeprefix("-")
    if one_line(name, METRIC_CHARS) != name or not name.strip("- ") or ":" in name:
        raise NightError(
            f"--metric {metric!r} names no number; name one as the script prints it, as in --metric val_loss"
        )
    for name in (*(name for name in OF_SCORED if name in asked), *(["pool"] if options.pool == "ray" else [])):
        raise NightError(
            f"{spelled(options, name)} is for scripts that nightshift scores; leave it out beside --metric {metric}"
        )

"""Read the plan of a study: its question, its arms, and the rules that would falsify each hypothesis. Pure."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agent.errors import NightError, ScriptError
from agent.script.contract import parse

Measure = Literal["val_bpb", "steps_s", "overhead_s", "peak_mb", "params"]  # of a run
MORE_IS_BETTER = frozenset({"steps_s"})
UNITS: Mapping[Measure, str] = {
    "val_bpb": "bits per byte", "steps_s": "steps per second of training", "params": "parameters",
    "overhead_s": "seconds beyond training: start, compilation, saving", "peak_mb": "MB of memory at the peak",
}  # fmt: skip
Text = Annotated[str, Meta(min_length=1, max_length=1000)]
Positive = Annotated[float, Meta(gt=0, le=1e9)]
WRONG_AT = re.compile(r" - at `\$(?:\.(\w+))?(?:\[(\d+)\])?(?:\.(\w+))?.*`")
FIELD = re.compile(r"unknown field `(\w+)`")
RULE = "write sums of arms with factors on both sides of < or >, as in: rope < 0.5 * everything"


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One script that is compared: the committed one, or another one, with these edits in this order."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z]\w{0,39}\Z")]
    script: str | None = None  # file, from the plan's folder
    patches: tuple[str, ...] = ()  # files, from the plan's folder
    idea: str | None = None  # of the catalogue
    dials: dict[str, Any] = {}
    why: str = ""


class Hypothesis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence, and the rules of which each would falsify it; an arm's name is its gain over the baseline."""

    name: Text
    says: Text
    falsified_if: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=50)]
    measure: Measure = "val_bpb"


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked, and what will be measured to answer it."""

    question: Text
    arms: Annotated[tuple[Arm, ...], Meta(min_length=2, max_length=100)] = msgspec.field(name="arm")  # baseline first
    margin: Positive  # the smallest difference of interest, in the unit of the primary measure
    budget_s: Positive = 300.0
    seeds: Annotated[int, Meta(ge=2, le=100)] = 5
    first_seed: Annotated[int, Meta(ge=0, le=10**6)] = 0
    paired: bool = True  # False: a seed does not do the same to two arms
    dataset: str | None = None
    primary: Measure = "val_bpb"
    others: tuple[Measure, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = msgspec.field(name="hypothesis", default=())


@dataclass(frozen=True, slots=True)
class Rule:
    """Falsified where a weighted sum of the arms' gains, with a constant, lies on one side of zero."""

    weights: Mapping[str, float]  # arm → its factor; "": the constant
    below: bool


def read_plan(text: str, file: str = "the plan") -> Plan:
    """Read a plan in TOML; raise NightError with the line for the first thing that is wrong in it."""
    try:
        plan = msgspec.convert(tomllib.loads(text), Plan)
    except tomllib.TOMLDecodeError as error:
        why = re.sub(r"(.*) \(at (line \d+), column \d+\)", r"\2: \1", str(error))
        raise NightError(f"{file} {why}; correct it and run again") from error
    except (msgspec.ValidationError, RecursionError) as error:
        at, field = WRONG_AT.search(str(error)), FIELD.search(str(error))
        table, number, key = at.groups() if at else (None, None, None)
        key, table = (key, table) if number else (table, None)
        line, why = line_of(text, table, int(number or 0), field[1] if field else key), WRONG_AT.sub("", str(error))
        raise NightError(f"{file} line {line}: {f'{key}: ' if key else ''}{why}; correct it and run again") from error
    names = [arm.name for arm in plan.arms]
    for number, name in enumerate(names):
        if name in names[:number]:
            line = line_of(text, "arm", number, "name")
            raise NightError(f"{file} line {line}: two arms are called {name}; rename one")
    for number, hypothesis in enumerate(plan.hypotheses):
        fault = next(filter(None, (_fault(rule, names) for rule in hypothesis.falsified_if)), None)
        if fault is not None:
            raise NightError(f"{file} line {line_of(text, 'hypothesis', number, 'falsified_if')}: {fault}")
    return plan


def _fault(rule: str, names: Sequence[str]) -> str | None:
    """Return what is wrong with a rule on these arms; None: nothing."""
    try:
        unknown = sorted(read_rule(rule).weights.keys() - {*names, ""})
    except (SyntaxError, ValueError, ScriptError):
        return f"{rule!r} is no rule; {RULE}"
    return f"there is no arm {unknown[0]}; the arms are {', '.join(names)}" if unknown else None


def line_of(text: str, table: str | None, number: int, key: str | None) -> int:
    """Return the line of a key in the table of this number, else that where the table begins.

    Tables are written below [[table]], or in braces, as in table = [. Of these each is looked for on a line of its own;
    where several share one, it is the line of the whole list.
    """
    lines = text.splitlines()
    begins = [at for at, line in enumerate(lines) if re.match(rf"\s*\[\[\s*{table}\s*\]\]", line)] if table else [0]
    if not begins:
        listed = next((at for at, line in enumerate(lines) if re.match(rf"\s*{table}\s*=", line)), 0)
        braces = [at for at in range(listed, len(lines)) if re.match(rf"\s*({table}\s*=\s*\[\s*)?\{{", lines[at])]
        return 1 + (braces[number] if number < len(braces) else listed)
    first = begins[number] if number < len(begins) else 0
    return 1 + next((at for at in range(first, len(lines)) if re.search(rf"^\W*{key}\s*=", lines[at])), first)


def read_rule(text: str) -> Rule:
    """Read a rule; raise SyntaxError, ScriptError or ValueError where it is none."""
    match parse(text).body:
        case [ast.Expr(ast.Compare(left=left, ops=[ast.Lt() | ast.Gt() as sign], comparators=[right]))]:
            return Rule(_sum(_weights(left), _weights(right), -1.0), isinstance(sign, ast.Lt))
    raise ValueError(text)


def _weights(node: ast.expr) -> Mapping[str, float]:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return {"": float(value)}
        case ast.Name(id=name):
            return {name: 1.0}
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _sum({}, _weights(inner), -1.0)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            return _sum(_weights(left), _weights(right), 1.0 if isinstance(op, ast.Add) else -1.0)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as op, right=right):
            ours, theirs = _weights(left), _weights(right)
            if isinstance(op, ast.Mult) and not ours.keys() - {""}:
                return _sum({}, theirs, ours[""])
            if not theirs.keys() - {""} and (theirs[""] or isinstance(op, ast.Mult)):
                return _sum({}, ours, theirs[""] if isinstance(op, ast.Mult) else 1 / theirs[""])
    raise ValueError(ast.dump(node))


def _sum(left: Mapping[str, float], right: Mapping[str, float], factor: float) -> Mapping[str, float]:
    total = Counter(dict(left))
    for name, weight in right.items():
        total[name] += factor * weight  # type: ignore[assignment]
    return dict(total)

"""Find out which attempt an edited script was made from, and which kept edits it lacks. Pure.

An author who edits a script for long may not notice that another edit was kept meanwhile. Without that edit, the script
would be measured against one that has it, and lose for a reason that has nothing to do with its idea.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agent.errors import ScriptError
from agent.experiment import Attempt, History, incumbent
from agent.script.dials import Value, values_of

SETTING = re.compile(r"([A-Z][A-Z0-9_]*)\s*(?::[^=]+)?=(?!=)")  # a dial's line: its value is looked at apart
# edits that were not kept, the latest, with which a script is compared; and their characters: a second reads 300,000
MOST_NEAR, MOST_NEAR_CHARS = 64, 4_000_000
SURE = 1000  # so many other edits would have to be missing before one that is held, line by line, counts as chance


@dataclass(frozen=True, slots=True)
class Basis:
    """Say what a script was made from."""

    number: int | None  # the attempt whose script is nearest; None: the committed script, which is none of them
    missing: tuple[Attempt, ...] = ()  # kept edits that came after it and that the script lacks, the oldest first


@dataclass(frozen=True, slots=True)
class _ReadText:
    lines: Counter[str]  # without blanks, comments and indentation; of a dial only its name
    values: dict[str, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, script: str, device_kind: str) -> "_ReadText":
        lines: Counter[str] = Counter()
        for line in script.splitlines():
            if text := line.strip():
                dial = SETTING.match(line)
                lines[f"{dial[1]} =" if dial else text] += not text.startswith("#")
        with suppress(ScriptError):  # nested too deep; its lines are known
            return cls(lines, values_of(script, device_kind))
        return cls(lines)

    def distance(self, other: "_ReadText") -> int:
        """Count the lines of which only one of the texts has a copy, and the dials that differ."""
        lines = (self.lines - other.lines).total() + (other.lines - self.lines).total()
        shared = self.values.keys() & other.values.keys()
        return lines + sum(self.values[name] != other.values[name] for name in shared)


@dataclass(frozen=True, slots=True)
class _KeptEdit:
    """Hold one kept edit. Only the lines that the incumbent still has count: later edits have replaced the others."""

    earlier: Sequence[_ReadText]  # the chain up to it
    after: _ReadText
    now: _ReadText  # the incumbent

    @property
    def before(self) -> _ReadText:
        return self.earlier[-1]

    def is_held_by(self, text: _ReadText) -> tuple[bool | None, int]:
        """Return whether a script has this edit, None where that is open, and how much the answer weighs."""
        by_lines = self._by_lines(text)
        return (by_lines, SURE if by_lines else 1) if by_lines is not None else (self._by_dials(text), 1)

    def _by_lines(self, text: _ReadText) -> bool | None:
        added = (self.after.lines - self.before.lines) & (self.now.lines - self.before.lines)
        removed = (self.before.lines - self.after.lines) & (self.before.lines - self.now.lines)
        has = (added & (text.lines - self.before.lines)).total()
        has_old = (removed & (text.lines - self.after.lines)).total()
        new, old = added.total(), removed.total()
        if new + old == 0:
            return None
        if 2 * has >= new and 2 * has_old <= old:
            return True
        return False if 2 * has <= new and 2 * has_old >= old else None

    def _by_dials(self, text: _ReadText) -> bool | None:
        votes = 0
        for name, value in self.after.values.items():
            old = self.before.values.get(name, value)
            if old != value and self.now.values.get(name) == value and name in text.values:
                own = text.values[name]
                votes += 1 if own == value else -any(own == one.values.get(name) for one in self.earlier)
        return votes > 0 if votes else None


def basis_of(script: str, history: History, device_kind: str, committed: str | None = None) -> Basis:
    """Return the script's basis in a night's history; committed: the script of HEAD, which may be in no attempt.

    The chain of kept edits, from attempt 0 to the incumbent, is cut where it fits best: the script holds the edits
    before the cut and lacks those after it. So one that lacks an older edit but holds the newest was made from the
    incumbent, and the deletion is its idea.
    """
    chain = kept_chain(history)
    if not chain:
        return Basis(None)
    text = _ReadText.of(script, device_kind)
    texts = [_ReadText.of(one.proposal.script, device_kind) for one in chain]
    edits = [_KeptEdit(texts[:at], texts[at], texts[-1]) for at in range(1, len(texts))]
    held = [edit.is_held_by(text) for edit in edits]
    cut = _cut(held, [text.distance(one) for one in texts])
    missing = tuple(edit for edit, (is_held, _) in zip(chain[cut + 1 :], held[cut:], strict=True) if is_held is False)
    number, distance = _nearest(text, chain[cut], texts[cut], history, device_kind)
    if committed is not None and distance:
        head = _ReadText.of(committed, device_kind)
        held = [edit.is_held_by(head) for edit in edits]
        if text.distance(head) < distance and _cut(held, [head.distance(one) for one in texts]) == cut:
            return Basis(None, missing)
    return Basis(number, missing)


def kept_chain(history: History) -> list[Attempt]:
    """Return the attempts whose edits make up the incumbent, attempt 0 first."""
    found, one = [], incumbent(history)
    while one is not None:
        found.append(one)
        one = None if one.parent is None else history[one.parent]
    return found[::-1]


def _cut(held: Sequence[tuple[bool | None, int]], distances: Sequence[int]) -> int:
    """Return how many of the edits a script was made with.

    Of several numbers that fit in full, the one of the nearest script counts. Of several that do not, the largest: a
    deletion is an idea unless it is clearly none.
    """
    misfits = [_misfit(held, at) for at in range(len(distances))]
    return min(range(len(distances)), key=lambda at: (misfits[at], 0 if misfits[at] else distances[at], -at))


def _misfit(held: Sequence[tuple[bool | None, int]], cut: int) -> int:
    before, after = held[:cut], held[cut:]
    lacked = sum(weight for is_held, weight in before if is_held is False)
    return lacked + sum(weight for is_held, weight in after if is_held)


def _nearest(
    text: _ReadText, base: Attempt, its_text: _ReadText, history: History, device_kind: str
) -> tuple[int, int]:
    """Return the base or, if that is nearer, an edit of it that was not kept; and the distance."""
    nearest, least = base.number, text.distance(its_text)
    most = max(1, min(MOST_NEAR, MOST_NEAR_CHARS // max(1, len(base.proposal.script))))
    for one in [one for one in history if one.parent == base.number][-most:] if least else ():
        distance = text.distance(_ReadText.of(one.proposal.script, device_kind))
        if distance < least:
            nearest, least = one.number, distance
    return nearest, least

"""Two attempts or two nights side by side: nightshift compare."""

import re
from dataclasses import dataclass

from agent.cli.answer import Answer
from agent.cli.find import BEST, CONFIRMED, address, attempt_in, place_meant, record_of, script_of
from agent.errors import NightError
from agent.experiment import Attempt
from agent.records.place import Place
from agent.records.record import Record
from agent.records.summary import NightSummary, summary_of
from agent.script.dials import dials_in, skeleton_in
from agent.text import diff_lines, harmless, harmless_lines
from agent.view import table
from agent.view.answer import AttemptOfNight, CompareAnswer, Measured, ScriptsCompared, for_author, plain
from agent.view.comparison import Comparison, Side, attempts_compared, nights_compared
from agent.view.course import settings
from agent.view.screen import print_folded, terminal_width
from agent.view.table import Column

LEAST = 12  # places of a cell
VERDICT = re.compile(r"[^:;(]+")  # the beginning of the sentence
COLUMNS = Column(""), Column("A", least=LEAST), Column("B", least=LEAST), Column("A → B", right=True, rank=1)


@dataclass(frozen=True, slots=True)
class Named:
    """Hold what one of the two words means."""

    night: Record
    attempt: Attempt | None  # None: the night as a whole

    @property
    def name(self) -> str:
        return self.night.tag if self.attempt is None else f"{self.night.tag}:{self.attempt.number}"


def compare(a: str, b: str, /, *, diff: bool = False) -> Answer:
    """Compare two attempts or two nights.

    It shows scores with their intervals, gains, dials, sizes, speed and time, and says in one sentence how sure the
    difference is. Two nights are compared by their best scripts.

    Args:
        a: an attempt (4, best, wide:4, wide:best) or a night (its TAG)
        b: another one
        diff: show only how the script of A becomes that of B
    """
    place = place_meant()
    first, second = (_named(place, word) for word in (a, b))
    if diff:
        return _diff(place, first, second)
    if first.name == second.name:
        raise NightError(f"{first.name} cannot be compared with itself; name another attempt or night")
    if (first.attempt is None) != (second.attempt is None):
        night = first if first.attempt is None else second
        raise NightError(
            f"{night.name} is a night and the other is an attempt; compare two of a kind, as its best attempt: "
            f"{night.name}:best"
        )
    if first.attempt is not None and second.attempt is not None:
        sides = _side(place, first.night, first.attempt), _side(place, second.night, second.attempt)
        found = attempts_compared(*sides)
    else:
        found = nights_compared(first.night, second.night)
    told = CompareAnswer(
        a=_told(first),
        b=_told(second),
        dials=found.dials,
        gain=found.gain,
        by=found.by,
        winner=found.winner,
        sentence=found.sentence,
    )
    return Answer(plain(told), lambda: _show(found, first, second))


def _named(place: Place, word: str) -> Named:
    """Return the attempt or night that a word of the command line means."""
    which = word.rpartition(":")[2]
    if not which.isdecimal() and which not in (BEST, CONFIRMED):
        return Named(record_of(place, word), None)
    tag, number = address(word)
    night = record_of(place, tag)
    return Named(night, attempt_in(night, number))


def _side(place: Place, night: Record, attempt: Attempt) -> Side:
    """Add the dials: of the script, where it is here, else those that the night has turned."""
    try:
        script = script_of(place, night, attempt)
    except NightError:
        return Side(night, attempt, settings(night).get(attempt.number))
    return Side(night, attempt, dials_in(script, night.night.device_kind), skeleton_in(script, night.night.device_kind))


def _show(found: Comparison, a: Named, b: Named) -> None:
    for letter, one in (("A", a), ("B", b)):
        title = f": {harmless(one.attempt.title)}" if one.attempt is not None else ""
        print_folded([f"{letter}  {one.name}{title}"])
    rows = [(line.name, line.a, line.b, line.change) for line in found.lines if line.a or line.b]
    print("\n".join(table.lines(COLUMNS, rows, terminal_width())))
    print_folded([found.sentence], VERDICT)


def _told(one: Named) -> AttemptOfNight | NightSummary:
    if one.attempt is None:
        return summary_of(one.night)
    return AttemptOfNight(one.night.tag, for_author(one.attempt), Measured.of(one.night, one.attempt))


def _diff(place: Place, a: Named, b: Named) -> Answer:
    """Return how the script of A becomes that of B; of a night, that of its best attempt."""
    before, after = (
        script_of(place, one.night, one.attempt or attempt_in(one.night, BEST)).splitlines() for one in (a, b)
    )
    text = "".join(f"{line}\n" for line in diff_lines(before, after, a.name, b.name))
    same = f"{a.name} and {b.name} are the same script"
    shown = harmless_lines(text.removesuffix("\n")) if text else same
    return Answer(plain(ScriptsCompared(a.name, b.name, text)), lambda: print(shown))

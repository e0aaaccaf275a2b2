"""Two attempts or two nights side by side: nightshift compare."""

import argparse
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from agent.cli.reading.scripts import attempt_in, facts_of, script_of
from agent.cli.reading.which import place_meant
from agent.cli.words.parser import Subcommand
from agent.errors import NightError, NothingYet
from agent.records.place import Place
from agent.script.dials import dials_in, skeleton_in
from agent.text import harmless, harmless_lines, shorten
from agent.view import table
from agent.view.answer import Answer, AnswersTo
from agent.view.comparison import Comparison, Side, attempts_compared, nights_compared
from agent.view.facts.json import plain
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.scoring_words import without_scoring_words
from agent.view.screen import print_folded, terminal_width
from agent.view.table import Column
from agent.view.tables import settings

LEAST = 12  # places of a cell
VERDICT = re.compile(r"[^:;(]+")  # the beginning of the sentence
COLUMNS = Column(""), Column("A", least=LEAST), Column("B", least=LEAST), Column("A → B", right=True, rank=1)
COMPARE_TEXT = (
    "Compare two attempts or two nights: scores with their intervals, gains, dials, sizes, speed and time, and in one "
    "sentence how sure the difference is. A and B are numbers of attempts, TAG:N for those of another night, or the "
    "tags of two nights, which are compared by their best scripts."
)


@dataclass(frozen=True, slots=True)
class CompareOptions:
    a: str
    b: str
    tag: str | None
    diff: bool
    answer: Answer


@dataclass(frozen=True, slots=True)
class Named:
    """Hold what one of the two words means."""

    night: NightFacts
    attempt: AttemptFacts | None  # None: the night as a whole

    @property
    def name(self) -> str:
        return self.night.tag if self.attempt is None else f"{self.night.tag}:{self.attempt.number}"


def compare(options: CompareOptions) -> int:
    place = place_meant(options.tag)
    facts = cache(lambda tag: facts_of(place, tag))
    a, b = (_named(word, options.tag, facts) for word in (options.a, options.b))
    if options.diff:
        return _show_diff(place, a, b, options.answer)
    if a.name == b.name:
        raise NightError(f"{a.name} cannot be compared with itself; name another attempt or night")
    if (a.attempt is None) != (b.attempt is None):
        night = a if a.attempt is None else b
        best = f"{night.name}:{night.night.incumbent or 0}"
        raise NightError(
            f"{night.name} is a night and the other is an attempt; compare two of a kind, as its best attempt: {best}"
        )
    if a.attempt is not None and b.attempt is not None:
        found = attempts_compared(_side(place, a.night, a.attempt), _side(place, b.night, b.attempt))
    else:
        found = nights_compared(a.night, b.night)
    _show(found, a, b, options.answer)
    return 0


def _named(word: str, tag: str | None, facts: Callable[[str | None], NightFacts]) -> Named:
    """Return the attempt or night that a word of the command line means."""
    of, colon, number = word.rpartition(":")
    if number.isdecimal():
        night = facts(of if colon else tag)
        return Named(night, attempt_in(night, int(number)))
    return Named(facts(word), None)


def _side(place: Place, night: NightFacts, attempt: AttemptFacts) -> Side:
    """Add the dials: of the script, where it is here, else those that the night has turned."""
    try:
        script = script_of(place, night, attempt)
    except NightError:
        return Side(night, attempt, settings(night).get(attempt.number))
    return Side(night, attempt, dials_in(script, night.device_kind), skeleton_in(script, night.device_kind))


def _show(found: Comparison, a: Named, b: Named, answer: Answer) -> None:
    if answer.on_stdout:
        answer.give(
            {
                "a": _as_json(a),
                "b": _as_json(b),
                "dials": plain(found.dials),
                "gain": plain(found.gain),
                "by": found.by,
                "winner": found.winner,
                "sentence": found.sentence,
            }
        )
        return
    for letter, one in (("A", a), ("B", b)):
        title = f": {harmless(one.attempt.title)}" if one.attempt is not None else ""
        print_folded([f"{letter}  {one.name}{title}"])
    width = terminal_width()
    most = None if width is None else _share(found, width)
    lines = [(one.name, _cut(one.a, most), _cut(one.b, most), one.change) for one in found.lines if one.a or one.b]
    print("\n".join(table.lines(COLUMNS, lines, width)))
    print_folded([found.sentence], VERDICT)


def _share(found: Comparison, width: int) -> int:
    """Return the places that each of the two has on a terminal: they share alike what names and changes leave."""
    taken = sum(
        max(len(text) for text in column)
        for column in zip(*((line.name, line.change) for line in found.lines), strict=True)
    )
    return max(LEAST, (width - taken - 3 * len(table.GAP)) // 2)


def _cut(text: str, most: int | None) -> str:
    return text if most is None else shorten(text, most)


def _as_json(one: Named) -> object:
    """Return all facts of an attempt, or those of a night without its attempts."""
    night = {name: value for name, value in plain(one.night).items() if name != "attempts"}
    return night if one.attempt is None else without_scoring_words(plain(one.attempt)) | {"tag": one.night.tag}


def _show_diff(place: Place, a: Named, b: Named, answer: Answer) -> int:
    """Print how the script of A becomes that of B; of a night, that of its best attempt."""
    before, after = (_script(place, one).splitlines(keepends=True) for one in (a, b))
    lines = difflib.unified_diff(before, after, a.name, b.name)
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    if answer.on_stdout:
        answer.give({"a": a.name, "b": b.name, "diff": text})
    else:
        print(harmless_lines(text.removesuffix("\n")) if text else f"{a.name} and {b.name} are the same script")
    return 0


def _script(place: Place, one: Named) -> str:
    if one.attempt is None and one.night.incumbent is None:
        raise NothingYet(f"night {one.name} has kept nothing yet, so it has no best script")
    return script_of(place, one.night, one.attempt or attempt_in(one.night, one.night.incumbent or 0))


def _compare_words(words: argparse.ArgumentParser) -> None:
    for name in "ab":
        words.add_argument(name, metavar=name.upper(), help="an attempt (N or TAG:N) or a night (TAG)")
    words.add_argument("--tag", metavar="TAG", help="of this night, for attempts without a tag (default: the latest)")
    words.add_argument("--diff", action="store_true", help="print only how the script of A becomes that of B")
    words.add_argument("--json", action="store_true", help="print the facts as JSON: nothing else on stdout")


COMPARE = Subcommand(
    "compare",
    "two attempts or nights side by side",
    CompareOptions,
    compare,
    _compare_words,
    COMPARE_TEXT,
    answers=AnswersTo.STDOUT,
)

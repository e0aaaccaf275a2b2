"""Show the known ideas, and what a model or an agent is told now: nightshift ideas, nightshift prompt."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from agent.cli.find import find_night, known_tag, place_meant
from agent.errors import NightError, NothingYet
from agent.experiment import Night
from agent.invocation import IDEAS as FOLDER
from agent.invocation import typed
from agent.lab.hardware import DeviceKind, has_cuda_build
from agent.night.proposals import briefing_of
from agent.proposers.catalogue.catalogue import listing
from agent.proposers.catalogue.evidence import Measurement, Prospect
from agent.proposers.catalogue.files import KnownIdea
from agent.proposers.prompts import compose, facts_page
from agent.proposers.proposer import Left
from agent.records.place import Place, past_nights, read_night, read_script
from agent.records.record import Record
from agent.text import harmless_lines, percent_sure
from agent.view.answer import Answer
from agent.view.screen import Column, print_folded, print_lines, print_text, table_lines, terminal_width
from agent.view.terminal import fact_lines

# ---- ideas -----------------------------------------------------------------------------------------------------------

EXPECTED = "expected gain %"
LEGEND = f"{EXPECTED}: percent of val_bpb that one try brings on average; a night tries the largest first"
IDEAS = (  # a narrow terminal leaves out the highest rank first
    Column("name"),
    Column("title", least=20),
    Column(EXPECTED, right=True, rank=1),
    Column("nights", right=True, rank=3),
    Column("measured %", right=True, rank=2),
    Column("sure", right=True, rank=4),
    Column("applies"),
    Column("group", rank=5),
    Column("source", rank=7, least=24),
    Column("reported", rank=6, least=24),
)


@dataclass(frozen=True, slots=True)
class IdeaFacts:
    """A known idea, and what was measured of it."""

    idea: KnownIdea
    measured: tuple[Measurement, ...]  # measured attempts of the idea, in this night and in earlier ones
    gain_percent: float | None  # mean of the measured gains
    expected_percent: float  # gain that is expected by everything known
    sure: float  # probability of a gain, 0 to 1
    state: str  # yes: the night may try it; no: it does not apply; unlikely: it will hardly help; kept #N; tried #N

    @classmethod
    def of(cls, prospect: Prospect) -> "IdeaFacts":
        facts = prospect.idea, prospect.measured, prospect.gain_percent
        return cls(*facts, prospect.estimate.mean_percent, prospect.estimate.sure, prospect.state)


def ideas(name: str = "", /) -> Answer:
    """List the known ideas, their expected and measured gains, and which apply.

    Args:
        name: show this idea in full, with its patch; TAG:NAME, or TAG: for all: as that night knows them (default: the
            latest)
    """
    tag, _, slug = name.rpartition(":")
    place, record = _night(tag or None)
    best = record.best
    script = read_script(place) if best is None else best.proposal.script
    applies_to = place.script if best is None else f"attempt {best.number} of night {record.tag}"
    file = place.script_path
    listed, faults = listing(file, record.night, script, record.attempts, past_nights(place, record.tag))
    if faults:
        print_lines(faults, stderr=True)
    if slug:
        listed = [prospect for prospect in listed if prospect.idea.slug == slug]
        if not listed:
            raise NightError(f"there is no idea {slug}; see them all with: {typed('ideas')}")
    if not listed:
        raise NightError(f"there is no idea in {file.parent / FOLDER}; put patches of your script there")
    facts = {
        "applies_to": applies_to,
        "ideas": [IdeaFacts.of(prospect) for prospect in listed],
        "faults": faults,
    }
    if slug:
        return Answer(facts, lambda: print_folded(idea_lines(listed[0], applies_to)))
    return Answer(facts, lambda: _show(listed, applies_to))


def _show(prospects: Sequence[Prospect], applies_to: str) -> None:
    lines = table_lines(IDEAS, map(_cells, prospects), terminal_width())
    print_lines(lines)
    applying = sum(prospect.applies for prospect in prospects)
    last = f"{len(prospects)} ideas, {applying} of them for {applies_to}; read one with: {typed('ideas', 'NAME')}"
    print_folded([*([LEGEND] if EXPECTED in lines[0] else []), last])


def _night(tag: str | None) -> tuple[Place, Record]:
    """Return the record of this night, or of the latest, and its place; without any, one that would begin here now."""
    place = place_meant(tag)
    if tag is not None or place.tags():
        return place, read_night(place, known_tag(place, tag))
    kind: DeviceKind = "metal" if sys.platform == "darwin" else "cuda" if has_cuda_build() else "cpu"
    nothing: dict[str, Any] = dict.fromkeys(("tag", "branch", "base", "device", "protocol", "data", "started"), "")
    return place, Record(Night(**nothing, script=place.script, budget_s=300.0, seed=0, device_kind=kind), ())


def _cells(prospect: Prospect) -> tuple[str, ...]:
    idea, expected, gain = prospect.idea, prospect.estimate, prospect.gain_percent
    return (
        idea.slug,
        idea.title,
        f"{prospect.worth_percent:.2f}",
        str(len(prospect.nights) or ""),
        "" if gain is None else f"{gain:+.2f}",
        "" if gain is None else f"{expected.sure:.2f}",
        prospect.state,
        idea.group,
        idea.source,
        idea.reported,
    )


def idea_lines(prospect: Prospect, applies_to: str) -> list[Text]:
    """Return everything about one idea, its patch at the end; applies_to: the script that it was compared with."""
    idea, expected = prospect.idea, prospect.estimate
    facts = (
        ("title", idea.title),
        ("group", idea.group),
        ("why", idea.why),
        ("source", idea.source),
        ("reported", idea.reported),
        ("gain", _percents(idea.gain_percent)),
        ("cost", f"{_percents(idea.cost_percent)} of tokens/s"),
        (
            "expected",
            f"{expected.mean_percent:+.2f} % ± {expected.spread_percent:.2f}, {percent_sure(expected.sure)} sure; "
            f"{prospect.worth_percent:.2f} % by one try, kept only if it is better",
        ),
        *(("tried", measured.words) for measured in prospect.measured),
        ("applies", f"{prospect.state} ({applies_to})"),
        ("file", str(idea.file)),
    )
    lines = [line for name, value in facts if value for line in fact_lines(name, value)]
    patch = harmless_lines(idea.patch.rstrip("\n")).split("\n")
    return [*lines, Text(""), *(Text(line, no_wrap=True) for line in patch)]


def _percents(by_kind: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {percent:g} %" for kind, percent in by_kind.items())


# ---- prompt ----------------------------------------------------------------------------------------------------------


def prompt(tag: str | None = None, /, *, facts: bool = False) -> Answer:
    """Print what a language model would be told now, for its next idea.

    Args:
        tag: the night (default: the latest)
        facts: print what an agent would be told: noise, speed, dials, edits, ideas, what a script may call
    """
    place, tag, who = find_night(tag)
    record = read_night(place, tag)
    best = record.best
    if best is None:
        go_on = f"wait for it, or where the night does not run, go on with: {typed('run', '--tag', tag)}"
        raise NothingYet(f"attempt 0 of night {tag} is not measured yet; {go_on}")
    left = Left() if who is None else who.left(len(record.ideas))
    briefing = briefing_of(place, record.night, record.attempts, best, left, has_reader=True)
    if facts:
        page = facts_page(briefing)
        return Answer({"tag": tag, "facts": page}, lambda: print_text(page.rstrip()))
    # After a crash, the edit's own proposer is first asked for a repair. This is the question for all other cases.
    question = compose(briefing)
    system, user = question.system, question.messages[0]
    parts = {"tag": tag, "system": system, "user": user, "stable_chars": question.stable_chars}
    return Answer(parts, lambda: print_text(f"{system}\n\n{user}"))

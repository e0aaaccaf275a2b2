"""Show the known ideas: as a table, one in full, or as facts for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from agent.proposers.catalogue.evidence import Measurement, Prospect
from agent.proposers.catalogue.files import KnownIdea
from agent.text import harmless_lines, percent_sure
from agent.view.screen import Column, table_lines
from agent.view.terminal import fact_lines


@dataclass(frozen=True, slots=True)
class IdeaFacts:
    """Hold a known idea, and what was measured of it."""

    idea: KnownIdea
    measured: tuple[Measurement, ...]  # its attempts in this night and in earlier ones
    gain_percent: float | None  # the mean of what they measured
    expected_percent: float  # gain, by all that is known
    sure: float  # the probability of a gain, 0 to 1
    state: str  # yes: the night may try it; no: it does not apply; unlikely: to help; kept #N, tried #N

    @classmethod
    def of(cls, prospect: Prospect) -> "IdeaFacts":
        facts = prospect.idea, prospect.measured, prospect.gain_percent
        return cls(*facts, prospect.estimate.mean_percent, prospect.estimate.sure, prospect.state)


EXPECTED = "expected gain %"
LEGEND = f"{EXPECTED}: of val_bpb, by one try that is kept only if it is better; a night tries the largest first"
IDEAS = (  # on a narrow terminal the highest rank is left out first
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


def ideas_lines(ideas: Sequence[Prospect], width: int | None) -> list[str]:
    """Return a table of the ideas in their order; `width` is the terminal's, None for all columns in full."""
    return table_lines(IDEAS, [_cells(prospect) for prospect in ideas], width)


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


def idea_lines(prospect: Prospect, applies_to: str, width: int | None) -> list[Text]:
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
            f"{prospect.worth_percent:.2f} % by one try, which is kept only if it is better",
        ),
        *(("tried", measured.words) for measured in prospect.measured),
        ("applies", f"{prospect.state} ({applies_to})"),
        ("file", str(idea.file)),
    )
    lines = [line for name, value in facts if value for line in fact_lines(name, value, width)]
    return [*lines, Text(""), *map(Text, harmless_lines(idea.patch.rstrip("\n")).split("\n"))]


def _percents(by_kind: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {percent:g} %" for kind, percent in by_kind.items())

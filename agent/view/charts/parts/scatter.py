"""Draw attempts as dots: each with its outcome's symbol, a link into the page, and words for a tooltip."""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.script.dials import Value
from agent.view.charts.parts.frame import Frame
from agent.view.charts.parts.palette import Spec
from agent.view.charts.parts.style import layer
from agent.view.charts.parts.symbols import dot
from agent.view.charts.parts.words import anchor, mark_label
from agent.view.facts.nouns import AttemptFacts, NightFacts


@dataclass(frozen=True, slots=True)
class Mark:
    """Hold an attempt at a place of a plot."""

    attempt: AttemptFacts
    x: Value
    bpb: float | None  # its score, or a change of it; None: it lies at the upper edge
    words: tuple[str, ...] = ()  # for its label


@dataclass(frozen=True, slots=True)
class Sheet:
    """Hold what the dots of a panel share."""

    night: NightFacts
    several: bool  # whether the page shows other nights, too
    frame: Frame
    channels: Spec  # of the outcomes

    def dots(self, marks: Iterable[Mark], x: Spec, size: int) -> Spec:
        """Return the layer of the dots, where x is the horizontal channel."""
        values = [
            {
                x["field"]: one.x,
                "bpb": round(at, 6),
                "outcome": what.word,
                "href": anchor(self.night, one.attempt.number, several=self.several),
                "label": mark_label(one.attempt, what.word, *one.words),
            }
            for one in marks
            for what, at in [dot(self.frame, one.attempt, one.bpb)]
        ]
        mark = {"type": "point", "size": size, "strokeWidth": 1.5, "opacity": 1}
        links = {"href": {"field": "href"}, "description": {"field": "label"}}
        return layer(values, mark, {"x": x, "y": self.frame.channel("bpb"), **self.channels, **links})

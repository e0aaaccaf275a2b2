"""Give each outcome of an attempt a word, a colour and a shape, the same in every chart."""

from collections.abc import Callable, Collection, Sequence
from enum import Enum

from agent.experiment import NOT_BELIEVED, Kind, Status
from agent.view.charts.parts.frame import CROSS_PX, Frame
from agent.view.charts.parts.palette import Colour, Spec
from agent.view.charts.parts.words import text_px
from agent.view.facts.lineage import was_kept
from agent.view.facts.nouns import AttemptFacts

BESIDE_WORD_PX = 32  # a legend's symbol, and the gap to the next column
HOLLOW = "transparent"
CROSS = "M-.8,-.8L.8,.8M-.8,.8L.8,-.8"
SLASHED = "M0,-.9A.9,.9,0,1,1,0,.9A.9,.9,0,1,1,0,-.9ZM-.9,.9L.9,-.9"
TEE = "M-.8,-.7L.8,-.7M0,-.7L0,.8"
TICK = "M0,-.9L0,.9"
LINE, BEAM = "M-1.4,0L1.4,0", "M0,-1L0,1M-.5,-1L.5,-1M-.5,1L.5,1"  # in a legend
TAKEN_BACK = frozenset({Kind.REVOKED, Kind.PASSENGER})


class Symbol(Enum):
    """Hold an outcome with its word, colour, shape and filling, in the order of legends."""

    KEPT = "kept", Colour.KEPT, "circle", Colour.KEPT
    REVOKED = "revoked later", Colour.REVOKED, SLASHED, HOLLOW
    OVERTAKEN = "overtaken", Colour.KEPT, "triangle-right", HOLLOW
    DISCARDED = "discarded", Colour.DISCARDED, "circle", HOLLOW
    FAR_OFF = "off the scale", Colour.DISCARDED, "triangle-up", HOLLOW
    DOUBTED = "not believed", Colour.DOUBTED, "diamond", HOLLOW
    UNSCORED = "no score", Colour.DISCARDED, TEE, HOLLOW
    CRASHED = "crashed", Colour.CRASHED, CROSS, HOLLOW
    OPEN = "not decided yet", Colour.OPEN, "square", HOLLOW
    BEST = "best so far", Colour.KEPT, LINE, HOLLOW  # not of an attempt: lines in the legend
    BEST_IN_NOISE = "best so far ± its noise", Colour.KEPT, LINE, HOLLOW
    START = "at the start", Colour.FAINT, TICK, HOLLOW
    IN_BEST = "in the best", Colour.KEPT, TICK, HOLLOW
    FRONT = "best for its cost", Colour.INK, LINE, HOLLOW
    HONEST = "honest gain", Colour.OPEN, BEAM, HOLLOW

    def __init__(self, word: str, colour: Colour, shape: str, fill: str) -> None:
        self.word, self.colour, self.shape, self.fill = word, colour, shape, fill


HOLLOW_BARS = frozenset({Symbol.OVERTAKEN, Symbol.UNSCORED})


def symbol(attempt: AttemptFacts) -> Symbol:
    """Return what became of an attempt by its latest decision."""
    if attempt.kind in NOT_BELIEVED:
        return Symbol.DOUBTED
    if attempt.status == Status.KEEP:
        return Symbol.KEPT
    if attempt.status == Status.CRASH:
        return Symbol.CRASHED
    if attempt.status is None:
        return Symbol.OPEN
    if attempt.val_bpb is None:
        return Symbol.UNSCORED
    if attempt.kind == Kind.OVERTAKEN:
        return Symbol.OVERTAKEN
    return Symbol.REVOKED if attempt.kind in TAKEN_BACK or was_kept(attempt) else Symbol.DISCARDED


def dot(frame: Frame, one: AttemptFacts, bpb: float | None) -> tuple[Symbol, float]:
    """Return how an attempt is drawn that has a score, or a change of it, and where on the vertical scale."""
    what = symbol(one)
    if bpb is None or what is Symbol.CRASHED:
        return what, frame.at(CROSS_PX)
    at = frame.within(bpb)
    return (Symbol.FAR_OFF if what is Symbol.DISCARDED and at > frame.ceiling_bpb else what), at


def symbol_channels(shown: Collection[Symbol], width: float) -> Spec:
    """Return the channels that draw the field `outcome`, with a legend in rows of a width if there is a choice."""
    order, channel = _choices(shown, width)
    return {
        "stroke": channel([one.colour for one in order]),
        "fill": channel([one.fill for one in order]),
        "shape": channel([one.shape for one in order]),
    }


def bar_channels(shown: Collection[Symbol], width: float) -> Spec:
    """Return the channels that draw bars by the field `outcome`: hollow where another outcome has the same colour."""
    order, channel = _choices(shown, width)
    return {
        "stroke": channel([one.colour for one in order]),
        "fill": channel([HOLLOW if one in HOLLOW_BARS else one.colour for one in order]),
    }


def _choices(shown: Collection[Symbol], width: float) -> tuple[list[Symbol], Callable[[Sequence[object]], Spec]]:
    """Return the symbols in the order of legends, and a function that makes a channel of one value for each."""
    order = [one for one in Symbol if one in shown]
    words = [one.word for one in order]
    legend = {"title": None, "orient": "top", "columns": _columns(words, width), "symbolSize": 70}

    def channel(values: Sequence[object]) -> Spec:
        scale = {"domain": words, "range": list(values)}
        return {"field": "outcome", "type": "nominal", "scale": scale, "legend": legend if len(order) > 1 else None}

    return order, channel


def _columns(words: Sequence[str], width: float) -> int:
    """Return into how many columns a legend fits."""
    for columns in range(len(words), 1, -1):
        widths = [max(map(text_px, words[at::columns])) + BESIDE_WORD_PX for at in range(columns)]
        if sum(widths) <= width:
            return columns
    return 1

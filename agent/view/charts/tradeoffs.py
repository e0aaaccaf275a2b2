"""What a score costs: val_bpb against parameters, memory and speed, with the attempts that no other beats in both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.view.charts.panel import dot, ends_of
from agent.view.charts.parts.frame import Frame
from agent.view.charts.parts.labels import Labelled, placed, sloped
from agent.view.charts.parts.palette import Colour, Spec
from agent.view.charts.parts.scale import Scale
from agent.view.charts.parts.style import GUTTER_PX, chart, layer, plot_px
from agent.view.charts.parts.symbols import Symbol, symbol, symbol_channels
from agent.view.charts.parts.thin import said, thinned
from agent.view.charts.parts.words import anchor, heading, mark_label
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.facts.tradeoffs import front

MOST_DOTS = 250  # in a panel, beside the front
LEAST_PANEL_PX, HEIGHT_PX = 280, 220
TICK_PX = 70


@dataclass(frozen=True, slots=True)
class Cost:
    """Something that an attempt needs, and how a chart shows it."""

    title: str
    of: Callable[[AttemptFacts], float | None]
    format: str  # of its axis, as D3 has them
    more_is_better: bool = False

    def price(self, one: AttemptFacts) -> float | None:
        """Return the cost such that lower is better."""
        value = self.of(one)
        return -value if value is not None and self.more_is_better else value


COSTS = (
    Cost("parameters, fewer is better", lambda one: one.params, "~s"),
    Cost("memory in GB, less is better", lambda one: one.memory_gb, "~g"),
    Cost("tokens a second, more is better", lambda one: one.tokens_s, "~s", more_is_better=True),
)


def tradeoffs_chart(night: NightFacts, width: int) -> Spec | None:
    """Draw a panel for each cost that is known of two attempts; None where there is no such cost."""
    scored = [one for one in night.attempts if one.is_idea and _is_scored(one)]
    costs = [cost for cost in COSTS if sum(cost.of(one) is not None for one in scored) > 1]
    if not costs:
        return None
    columns = max(1, min(len(costs), width // LEAST_PANEL_PX))
    frame = Frame.over(ends_of(night), scored, HEIGHT_PX)
    shown = {dot(frame, one)[0] for one in scored} | {Symbol.FRONT}
    channels = symbol_channels(shown, width - GUTTER_PX)
    panels = [_panel(night, cost, scored, frame, plot_px(width, columns), channels) for cost in costs]
    best = (f"{cost.title}: {sorted(front(night, cost.price))} are best." for cost in costs)
    return chart(panels, " ".join(["val_bpb against its costs, by attempts.", *best]), columns)


def _is_scored(one: AttemptFacts) -> bool:
    return one.val_bpb is not None and symbol(one) is not Symbol.CRASHED


def _panel(
    night: NightFacts, cost: Cost, scored: Sequence[AttemptFacts], frame: Frame, width: float, channels: Spec
) -> Spec:
    priced = [(one, value) for one in scored if (value := cost.of(one)) is not None]
    best = front(night, cost.price)
    on_front = [pair for pair in priced if pair[0].number in best]
    few = thinned([pair for pair in priced if pair[0].number not in best], MOST_DOTS)
    scale = Scale.around([value for _, value in priced], width)
    values = [
        {
            "cost": value,
            "bpb": round(at, 6),
            "outcome": what.word,
            "href": anchor(night, one.number, several=False),
            "label": mark_label(one, what.word, f"{cost.title.partition(',')[0]}: {value:,.4g}"),
        }
        for one, value in (*few, *on_front)
        for what, at in [dot(frame, one)]
    ]
    x = scale.channel("cost", title=cost.title, grid=False, format=cost.format, tickCount=int(width // TICK_PX))
    size = 36 if len(values) < 100 else 18
    mark = {"type": "point", "size": size, "strokeWidth": 1.5, "opacity": 1}
    links = {"href": {"field": "href"}, "description": {"field": "label"}}
    dots = layer(values, mark, {"x": x, "y": frame.channel("bpb"), **channels, **links})
    layers = [*_front(on_front, cost, frame, x), dots, *_labels(night, priced, scale, frame)]
    words = said([*few, *on_front], priced, "attempts")
    spec: Spec = {"width": width, "height": frame.height, "layer": layers}
    return spec | ({"title": heading("", words, width)} if words else {})


def _front(best: Sequence[tuple[AttemptFacts, float]], cost: Cost, frame: Frame, x: Spec) -> list[Spec]:
    """Draw the best score that can be had for each cost."""
    values = [{"cost": value, "bpb": one.val_bpb} for one, value in best]
    step = "step-before" if cost.more_is_better else "step-after"
    label = "the best score for its cost"
    mark = {"type": "line", "interpolate": step, "color": Colour.INK, "strokeWidth": 1.25, "description": label}
    return [layer(values, mark, {"x": x, "y": frame.channel("bpb")})]


def _labels(night: NightFacts, priced: Sequence[tuple[AttemptFacts, float]], scale: Scale, frame: Frame) -> list[Spec]:
    """Name the script that the night began with and the best one."""
    names = {0: "baseline", night.incumbent: "best"} if night.incumbent else {0: "baseline"}
    places = {one.number: (scale.px(value), frame.y_px(dot(frame, one)[1])) for one, value in priced}
    points = [Labelled(places[number], name) for number, name in names.items() if number in places]
    return sloped(placed(points, thinned(list(places.values()), MOST_DOTS), scale.width, frame.height))

"""Draw val_bpb against parameters, memory and speed, with the attempts that no other beats in both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.experiment import NOT_BELIEVED
from agent.view.charts.panel import ends_of
from agent.view.charts.parts.frame import Frame
from agent.view.charts.parts.labels import Labelled, placed, sloped
from agent.view.charts.parts.palette import Colour, Spec
from agent.view.charts.parts.scale import Scale
from agent.view.charts.parts.scatter import Mark, Sheet
from agent.view.charts.parts.style import GUTTER_PX, chart, layer, plot_px
from agent.view.charts.parts.symbols import Symbol, dot, symbol, symbol_channels
from agent.view.charts.parts.thin import apart, said, thinned
from agent.view.charts.parts.words import heading
from agent.view.facts.nouns import AttemptFacts, NightFacts

MOST_DOTS = 250  # in a panel, beside the front
LEAST_PANEL_PX, HEIGHT_PX = 250, 220
TICK_PX = 70


@dataclass(frozen=True, slots=True)
class Cost:
    """Hold a cost of an attempt, and how a chart shows it."""

    title: str
    of: Callable[[AttemptFacts], float | None]
    format: str  # of its axis, as D3 has them
    words: str  # above its panel: who counts it
    more_is_better: bool = False

    def price(self, one: AttemptFacts) -> float | None:
        """Return the cost, negative where more is better, so that lower is better."""
        value = self.of(one)
        return -value if value is not None and self.more_is_better else value

    def of_all(self, attempts: Sequence[AttemptFacts]) -> "list[Priced]":
        """Return the attempts whose cost is known, with it."""
        return [(one, value) for one in attempts if (value := self.of(one)) is not None]


Priced = tuple[AttemptFacts, float]
SCRIPTS_COUNT = "by the script's own count"
COSTS = (
    Cost("parameters, fewer is better", lambda one: one.params, "~s", "of the saved weights"),
    Cost("memory in GB, less is better", lambda one: one.memory_gb, "~g", SCRIPTS_COUNT),
    Cost("tokens a second, more is better", lambda one: one.tokens_s, "~s", SCRIPTS_COUNT, more_is_better=True),
)
WHAT = "val_bpb, lower is better, against what it takes"


def tradeoffs_chart(night: NightFacts, width: int, *, several: bool = False) -> Spec | None:
    """Draw a panel for each cost that differs between attempts; None where there is no such cost."""
    scored = [one for one in night.attempts if one.is_idea and _is_scored(one)]
    costs = [cost for cost in COSTS if len({value for _, value in cost.of_all(scored)}) > 1]
    if not costs:
        return None
    columns = max(1, min(len(costs), width // LEAST_PANEL_PX))
    frame = Frame.over(ends_of(night), [one.val_bpb for one in scored], HEIGHT_PX)
    shown = {dot(frame, one, one.val_bpb)[0] for one in scored} | {Symbol.FRONT}
    sheet = Sheet(night, several, frame, symbol_channels(shown, width - GUTTER_PX))
    what = [WHAT] if len(costs) == 1 else []  # else above all panels
    panels = [_panel(sheet, cost, cost.of_all(scored), plot_px(width, columns), what) for cost in costs]
    best = (f"{cost.title}: {sorted(front(night, cost.price))} are best." for cost in costs)
    spec = chart(panels, " ".join(["val_bpb against its costs, by attempts.", *best]), columns)
    return spec if what else spec | {"title": heading("", [WHAT], width - GUTTER_PX)}


def _is_scored(one: AttemptFacts) -> bool:
    return one.val_bpb is not None and symbol(one) is not Symbol.CRASHED


def _panel(sheet: Sheet, cost: Cost, priced: Sequence[Priced], width: float, words: Sequence[str]) -> Spec:
    best = front(sheet.night, cost.price)
    on_front, rest = apart(priced, lambda pair: pair[0].number in best)
    few = sorted([*thinned(rest, MOST_DOTS), *on_front], key=lambda pair: symbol(pair[0]) is Symbol.KEPT)  # on top
    scale = Scale.around([value for _, value in priced], width)
    x = scale.channel("cost", title=cost.title, grid=False, format=cost.format, tickCount=int(width // TICK_PX))
    name = cost.title.partition(",")[0]
    marks = [Mark(one, value, one.val_bpb, (f"{name}: {value:,.4g}",)) for one, value in few]
    dots = sheet.dots(marks, x, 36 if len(few) < 100 else 18)
    layers = [_front(on_front, cost, sheet.frame, x), dots, *_labels(sheet, priced, scale)]
    title = heading("", [*words, cost.words, *said(few, priced, "attempts")], width)
    return {"width": width, "height": sheet.frame.height, "layer": layers, "title": title}


def _front(best: Sequence[Priced], cost: Cost, frame: Frame, x: Spec) -> Spec:
    """Draw the best score that can be had for each cost."""
    values = [{"cost": value, "bpb": one.val_bpb} for one, value in best]
    step = "step-before" if cost.more_is_better else "step-after"
    label = "the best score for its cost"
    mark = {"type": "line", "interpolate": step, "color": Colour.INK, "strokeWidth": 1.25, "description": label}
    return layer(values, mark, {"x": x, "y": frame.channel("bpb")})


def _labels(sheet: Sheet, priced: Sequence[Priced], scale: Scale) -> list[Spec]:
    """Name the script that the night began with, and the best one."""
    frame, best = sheet.frame, sheet.night.incumbent
    names = {0: "baseline", best: "best"} if best else {0: "baseline"}
    places = {one.number: (scale.px(value), frame.y_px(dot(frame, one, one.val_bpb)[1])) for one, value in priced}
    points = [Labelled(places[number], name) for number, name in names.items() if number in places]
    return sloped(placed(points, thinned(list(places.values()), MOST_DOTS), scale.width, frame.height))


def front(facts: NightFacts, cost: Callable[[AttemptFacts], float | None]) -> frozenset[int]:
    """Return the attempts that no other beats in both val_bpb and cost; lower is better in both.

    Scores that are not believed, and attempts without a score or a cost, are left out. Of equals, the first counts.
    """
    found: set[int] = set()
    least_bpb = float("inf")
    for _, val_bpb, number in sorted(
        (price, one.val_bpb, one.number)
        for one in facts.attempts
        if one.val_bpb is not None and one.kind not in NOT_BELIEVED and (price := cost(one)) is not None
    ):
        if val_bpb < least_bpb:
            found.add(number)
            least_bpb = val_bpb
    return frozenset(found)

"""Draw what each worker of a night did when: a row for each, a bar for each run in the colour of its outcome."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.text import counted, duration, one_line
from agent.view.charts.parts.palette import Colour, Spec
from agent.view.charts.parts.style import chart, layer, pixels, words_at
from agent.view.charts.parts.symbols import Symbol, bar_channels, symbol
from agent.view.charts.parts.words import FONT_PX, anchor, fitting, heading, mark_label, text_px
from agent.view.facts.load import BusyTime, Stretch, busy_times_of, in_order, load_of, others_of, stretches
from agent.view.facts.nouns import AttemptFacts, NightFacts

MOST_RUNS = 2000  # bars; of a longer night, the latest runs are drawn
MOST_NAMES_PX, GAP_PX, AXIS_PX = 130.0, 10.0, 18.0
ROW_PX, LOW_ROW_PX, MANY = 20, 13, 24  # rows of more workers are lower
STEPS_H = (1 / 60, 1 / 12, 1 / 6, 1 / 2, 1, 2, 5, 10, 24, 48, 120, 240)  # between two ticks
TICK_PX = 60
LEAST_GAP_PX = 4.0  # bars that are wider have paper between them


@dataclass(frozen=True, slots=True)
class Timeline:
    """Hold the places of times in a plot: the pauses of the night have no room in it."""

    parts: Sequence[Stretch]
    left: float
    width: float

    @property
    def hours(self) -> float:
        return sum(one.length_s for one in self.parts) / 3600

    def px(self, hours: float) -> float:
        """Return the place of a time by the hours at work before it."""
        return self.left + hours / (self.hours or 1.0) * self.width

    def at(self, when_s: float) -> float:
        """Return the place of a time of the clock time.time()."""
        return self.px(sum(min(max(0.0, when_s - one.began_s), one.length_s) for one in self.parts) / 3600)

    @property
    def breaks(self) -> Iterator[float]:
        """Yield the places of the pauses."""
        return (self.at(one.began_s) for one in self.parts[1:])


def workers_chart(night: NightFacts, width: int, *, several: bool = False) -> Spec | None:
    """Draw the runs of all workers; None where one worker made them all."""
    names = sorted({run.worker for one in night.attempts for run in one.runs}, key=in_order)
    every = busy_times_of(night) if len(names) > 1 else []
    if not every:
        return None
    few = sorted(every, key=lambda one: one.began_s)[-MOST_RUNS:]
    parts = stretches(few, others_of(night) if len(few) == len(every) else (), night.budget_s, night.calls)
    row_px = ROW_PX if len(names) <= MANY else LOW_ROW_PX
    inner, names_px = width - 8, min(MOST_NAMES_PX, max(map(text_px, names))) + GAP_PX
    line = Timeline(parts, names_px, inner - names_px - text_px("0 h"))
    rows = {name: at * row_px for at, name in enumerate(names)}
    height = len(names) * row_px
    known = {one.number: one for one in night.attempts}
    shown = {symbol(known[one.attempt]) for one in few}
    labels = [{"x": 0, "y": y + row_px / 2, "text": fitting(name, MOST_NAMES_PX)} for name, y in rows.items()]
    layers = [
        _rules(line, height),
        _bars(night, few, known, line, rows, row_px, bar_channels(shown, inner), several=several),
        *words_at(labels, align="left"),
        *_ticks(line, height),
    ]
    words = _words(night, len(names), len(parts) - 1, len(few), len(every))
    spec: Spec = {"width": inner, "height": height + AXIS_PX, "layer": layers, "title": heading("", words, inner)}
    return chart([spec], f"What each of {counted(len(names), 'worker')} did when: {', '.join(words)}.")


def _words(night: NightFacts, workers: int, pauses: int, shown: int, runs: int) -> list[str]:
    load = load_of(night)
    words = [counted(workers, "worker")]
    if load.utilisation is not None:
        words.append(f"busy for {load.utilisation:.0%} of {duration(load.at_work_s / 3600)} at work")
    if load.experiments_an_hour:
        words.append(f"{counted(round(load.experiments_an_hour), 'experiment')} an hour")
    words += [f"{counted(pauses, 'pause')} of the night left out"] if pauses else []
    return words + ([f"the latest {shown:,} of {runs:,} runs are shown"] if shown < runs else [])


def _bars(
    night: NightFacts,
    runs: Sequence[BusyTime],
    known: Mapping[int, AttemptFacts],
    line: Timeline,
    rows: Mapping[str, float],
    row_px: float,
    colours: Spec,
    *,
    several: bool,
) -> Spec:
    values = []
    for run in runs:
        left, right = line.at(run.began_s), line.at(run.ended_s)
        edge = 1.0 if right - left > LEAST_GAP_PX else 0.0
        values.append(
            {
                "x": round(left + edge / 2, 1),
                "x2": round(max(left + 0.5, right - edge), 1),
                "y": rows[run.worker] + 2,
                "y2": rows[run.worker] + row_px - 2,
                "outcome": symbol(known[run.attempt]).word,
                "href": anchor(night, run.attempt, several=several),
                "label": _label(run, known[run.attempt]),
            }
        )
    ends = {"x": pixels("x"), "x2": {"field": "x2"}, "y": pixels("y"), "y2": {"field": "y2"}}
    links = {"href": {"field": "href"}, "description": {"field": "label"}}
    return layer(values, {"type": "rect", "opacity": 0.75, "strokeWidth": 1}, ends | colours | links)


def _label(run: BusyTime, attempt: AttemptFacts) -> str:
    took = duration((run.ended_s - run.began_s) / 3600)
    when = "at dawn, " if run.dawn else ""
    what = symbol(attempt).word if attempt.status is not None else Symbol.OPEN.word
    return mark_label(attempt, f"{one_line(run.worker, 40)}, {when}seed {run.seed}, {run.ending} after {took}", what)


def _rules(line: Timeline, height: float) -> Spec:
    """Draw a line for each tick, and a darker one where the night paused."""
    values = [{"x": line.px(hours), "y": 0, "y2": height, "colour": Colour.GRID} for hours in _hours(line)]
    values += [{"x": place, "y": 0, "y2": height, "colour": Colour.FAINT} for place in line.breaks]
    colour = {"color": {"field": "colour", "type": "nominal", "scale": None}}
    mark = {"type": "rule", "aria": False}
    return layer(values, mark, {"x": pixels("x"), "y": pixels("y"), "y2": {"field": "y2"}} | colour)


def _ticks(line: Timeline, height: float) -> list[Spec]:
    """Write the hours at work below the rows."""
    values = [{"x": line.px(hours), "y": height + AXIS_PX - 6, "text": _clock(hours)} for hours in _hours(line)]
    encoding = {"x": pixels("x"), "y": pixels("y"), "text": {"field": "text"}}
    look = {"type": "text", "baseline": "middle", "fontSize": FONT_PX, "color": Colour.FAINT, "aria": False}
    return [layer(values, look, encoding)]


def _hours(line: Timeline) -> list[float]:
    step = next((one for one in STEPS_H if line.hours / one * TICK_PX <= line.width), STEPS_H[-1])
    return [at * step for at in range(int(line.hours / step) + 1)]


def _clock(hours: float) -> str:
    minutes = round(60 * hours)
    whole, rest = divmod(minutes, 60)
    return (
        f"{whole} h {rest:02d}" if whole and rest else f"{whole} h" if whole else f"{minutes} min" if minutes else "0"
    )

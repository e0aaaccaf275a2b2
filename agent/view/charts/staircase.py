"""Draw the lines of the progress chart: the incumbent with its noise, revocations, the honest gain at dawn."""

from typing import Any

from agent.view.charts.panel import Panel
from agent.view.charts.parts.frame import Frame
from agent.view.charts.parts.palette import Colour, Spec
from agent.view.charts.parts.style import layer
from agent.view.charts.parts.symbols import TICK
from agent.view.facts.series import Stair

DESCRIBED = {"description": {"field": "label"}}
SILENT = {"aria": False}  # what another mark says already


def staircase(panel: Panel) -> list[Spec]:
    """Draw the incumbent after each attempt as a line, with the noise of its score as a band."""
    steps = panel.course.staircase
    if not steps:
        return []
    values: list[dict[str, float]] = []
    for step in steps:
        level = _level(panel.frame, step)
        if not values or any(values[-1][name] != bpb for name, bpb in level.items()):
            values.append({"n": step.number, **level})
    label = f"best so far: {values[0]['bpb']:.6f} bpb at first, {values[-1]['bpb']:.6f} at the end"
    values.append(values[-1] | {"n": panel.last})
    look = {"color": Colour.KEPT, "interpolate": "step-after"}
    band = {"type": "area", "opacity": 0.14, **look, **SILENT}
    line = {"type": "line", "strokeWidth": 1.75, "description": label, **look}
    low_to_high = {"x": panel.x, "y": panel.y | {"field": "low"}, "y2": {"field": "high"}}
    return [
        layer(values, band, low_to_high),
        layer(values, line, {"x": panel.x, "y": panel.y}),
    ]


def _level(frame: Frame, step: Stair) -> dict[str, float]:
    ends = {"bpb": step.mean_bpb, "low": step.low_bpb, "high": step.high_bpb}
    return {name: round(frame.cut(bpb), 6) for name, bpb in ends.items()}


def revocations(panel: Panel) -> list[Spec]:
    """Draw how long each revoked attempt was kept, as a line that begins at it."""
    scores = {one.number: one.val_bpb for one in panel.night.attempts}
    values = [
        {
            "n": number,
            "bpb": round(panel.frame.within(bpb), 6),
            "until": after,
            "label": f"attempt {number} was kept until attempt {after}, then revoked",
        }
        for number, after in panel.course.revocations
        if (bpb := scores.get(number)) is not None
    ]
    if not values:
        return []
    look = {"stroke": Colour.REVOKED, "strokeWidth": 2.5}
    end = {"type": "point", "shape": TICK, "size": 46, **look, **SILENT}
    held = {"x": panel.x, "x2": {"field": "until"}, "y": panel.y, **DESCRIBED}
    return [
        layer(values, {"type": "rule", **look}, held),
        layer(values, end, {"x": panel.x | {"field": "until"}, "y": panel.y}),
    ]


def honest_gain(panel: Panel) -> list[Spec]:
    """Draw the honest gain below the first score, right of the last attempt."""
    dawn, steps = panel.night.dawn, panel.course.staircase
    if dawn is None or dawn.honest is None or not steps:
        return []
    first, gain = steps[0].mean_bpb, dawn.honest
    value: dict[str, Any] = {
        "n": panel.dawn_at,
        "bpb": first - gain.mean_bpb,
        "low": first - gain.high_bpb,
        "high": first - gain.low_bpb,
        "label": f"honest gain at dawn {gain.mean_bpb:+.6f} bpb, 95 % {gain.low_bpb:+.6f} to {gain.high_bpb:+.6f}",
    }
    look = {"color": Colour.OPEN}
    rule = {"type": "rule", "strokeWidth": 1.75, **look}
    end = {"type": "tick", "orient": "horizontal", "size": 9, "thickness": 1.75, **look, **SILENT}
    dot = {"type": "point", "shape": "diamond", "filled": True, "size": 60, "opacity": 1, **look, **SILENT}
    x, low, high = panel.x, panel.y | {"field": "low"}, panel.y | {"field": "high"}
    return [
        layer([value], rule, {"x": x, "y": low, "y2": {"field": "high"}, **DESCRIBED}),
        layer([value], end, {"x": x, "y": low}),
        layer([value], end, {"x": x, "y": high}),
        layer([value], dot, {"x": x, "y": panel.y}),
    ]

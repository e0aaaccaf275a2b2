"""Landscapes over the project's own dials, where the truth is known; landscapes.py lets proposers loose on them."""

from __future__ import annotations

import math
import random
from functools import lru_cache

import measure
import numpy as np

from agent.script.dials import Choices, Dial, Range, Value, read_dials, searched, set_dials

KIND = "cpu"
SOURCE = measure.SCRIPT.read_text()
SCRIPT = SOURCE[SOURCE.index("# Shape of the model") : SOURCE.index("# Machinery")]  # its dials with ranges
DIALS = searched(SCRIPT, KIND)
NAMES = [dial.name for dial in DIALS]
GAINS = {"bowl": 8.0, "loud": 4.0, "quiet": 30.0, "tuned": 3.0, "short": 30.0, "cliffs": 10.0, "edges": 10.0}  # sigma
Place = np.ndarray  # (D,), 0 to 1 on every dial

# ---- dials and places ------------------------------------------------------------------------------------------------


def coordinate(dial: Dial, value: Value) -> float:
    if isinstance(dial.span, Choices):
        return dial.span.values.index(value) / (len(dial.span.values) - 1) if value in dial.span.values else 0.5
    assert isinstance(dial.span, Range)
    assert isinstance(value, int | float)
    low, high = dial.span.low, dial.span.high
    return math.log(value / low) / math.log(high / low) if dial.span.log else (value - low) / (high - low)


@lru_cache(100_000)
def place_of(script: str) -> Place:
    values = {dial.name: dial.value for dial in read_dials(script, KIND)}
    return np.array([coordinate(dial, values[dial.name]) for dial in DIALS])


def script_at(place: Place, parent: str) -> str:
    """The parent's script with its dials at a place; choices at the nearest one."""
    changed = {}
    for dial, to, at in zip(DIALS, np.clip(place, 0, 1), place_of(parent), strict=True):
        if isinstance(dial.span, Choices):
            last = len(dial.span.values) - 1
            if round(to * last) != round(at * last):
                changed[dial.name] = dial.span.values[round(to * last)]
        elif isinstance(dial.span, Range) and abs(to - at) > 0.01:
            low, high = dial.span.low, dial.span.high
            changed[dial.name] = float(low * (high / low) ** to if dial.span.log else low + to * (high - low))
    return set_dials(parent, KIND, changed)


START = place_of(SCRIPT)
START.setflags(write=False)


# ---- the truth -------------------------------------------------------------------------------------------------------


class Landscape:
    """Drawn from its kind and seed alone."""

    def __init__(self, kind: str, seed: int) -> None:
        rng = random.Random(f"{kind} {seed}")
        active = set(rng.sample(range(len(DIALS)), rng.choice([4, 5, 6])))
        if kind == "short":
            active |= {NAMES.index(name) for name in ("BATCH_ROWS", "DEPTH", "ASPECT_RATIO")}
        self.best, self.weight = START.copy(), np.zeros(len(DIALS))
        for i, at in enumerate(START):
            rises = (at < 0.5) == (rng.random() < 0.65)  # more often towards the middle
            room = 1 - at if rises else at
            rises, room = (rises, room) if room >= 0.15 else (not rises, 1 - room)
            far = min(room, rng.uniform(0.15, 0.5) * (0.4 if kind == "tuned" else 1.0))
            if i in active:
                self.best[i] = at + far if rises else at - far
                self.weight[i] = math.exp(rng.gauss(0, 0.8)) / far**2
            else:
                self.best[i] = at + rng.uniform(-0.08, 0.08)
        self.weight *= GAINS[kind] / (self.weight * (START - self.best) ** 2).sum()
        for i in set(range(len(DIALS))) - active:
            self.weight[i] = rng.choice([0, 0, 2, 6, 6]) * (2 if kind == "tuned" else 1)
        pairs = [rng.sample(sorted(active), 2) for _ in range(2)]
        strength = [rng.uniform(-0.6, 0.6) * math.sqrt(self.weight[i] * self.weight[j]) for i, j in pairs]
        self.pairs = [(i, j, how) for (i, j), how in zip(pairs, strength, strict=True)]
        floats = [i for i, dial in enumerate(DIALS) if isinstance(dial.span, Range) and START[i] < 0.8]
        self.cliffs = [
            (i, rng.uniform(max(START[i], self.best[i]) + 0.08, 1.1))
            for i in rng.sample(floats, {"cliffs": 6, "edges": 0}.get(kind, 2))
        ]
        self.drops: list[tuple[int, float]] = []  # cliffs below
        for i in rng.sample(range(len(DIALS)), len(DIALS) // 4 if kind == "edges" else 0):
            if rng.random() < 0.65:
                self.cliffs.append((i, rng.uniform(max(START[i], self.best[i]) + 0.08, 1.1)))
            else:
                self.drops.append((i, rng.uniform(-0.1, min(START[i], self.best[i]) - 0.08)))

    def loss(self, place: Place) -> float:
        off = place - self.best
        return float((self.weight * off**2).sum() + sum(how * off[i] * off[j] for i, j, how in self.pairs))

    def crashes(self, place: Place) -> bool:
        too_large = place[NAMES.index("BATCH_ROWS")] + place[NAMES.index("DEPTH")] > 1.35
        above = any(place[i] > edge for i, edge in self.cliffs)
        return bool(too_large or above or any(place[i] < edge for i, edge in self.drops))

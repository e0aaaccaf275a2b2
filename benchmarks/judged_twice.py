"""What does a judge see in a recorded night with scores compared seed by seed, and with each score taken alone?

    python benchmarks/judged_twice.py [--nights five] [--json FILE]

A shipped night is judged as it is, and again with other seeds for each script, which leaves nothing to pair. Each edit
has a line: its gain with the 95 % interval, and how sure a gain is, both ways.

Flat keys of --json: edits; narrower, the median over the edits of an interval's width by pairs, over that without;
verdicts_differ, edits of which one way is at least half sure of a gain and the other is not.
"""

import statistics
from dataclasses import replace
from typing import Annotated

import measure
from cyclopts import Parameter

from agent.experiment import Attempt
from agent.judging.noise import Knowledge, know, measured
from agent.records.shipped import of_folder
from agent.text import two_digits

APART = 1_000_000  # seeds of one script lie so far from those of the next


def with_own_seeds(attempt: Attempt) -> Attempt:
    runs = (replace(run, seed=APART * attempt.number + run.seed) for run in attempt.runs)
    return replace(attempt, runs=tuple(runs))


def seen(knowledge: Knowledge, number: int) -> tuple[float, float, float, float]:
    """Return an edit's gain, the ends of its interval, in bits per byte, and how sure a gain is."""
    effect = knowledge.effect(number)
    interval = effect.interval(knowledge.sigma_bpb)
    return interval.mean_bpb, interval.low_bpb, interval.high_bpb, effect.sure


@measure.program()
def main(*, nights: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = ("five",)) -> measure.Flat:
    """Judge recorded nights twice.

    Args:
        nights: folders in experiments/shipped/
    """
    narrower, differ = list[float](), 0
    for night in nights:
        folder = measure.ROOT / "experiments" / "shipped" / night
        if not folder.is_dir():
            raise measure.Misuse(f"there is no shipped night {night}; see experiments/shipped/")
        attempts = measured(of_folder(folder).attempts)
        paired, alone = know(attempts), know([with_own_seeds(attempt) for attempt in attempts])
        if paired is None or alone is None:
            raise measure.Failed(f"the noise of {night} is not known")
        for attempt in attempts[1:]:
            ways = [seen(knowledge, attempt.number) for knowledge in (paired, alone)]
            words = (f"{two_digits(gain)} [{low:.4f}, {high:.4f}], {sure:.0%} sure" for gain, low, high, sure in ways)
            measure.say(f"{night} #{attempt.number} {attempt.title[:40]}: {'; alone '.join(words)}")
            narrower.append((ways[0][2] - ways[0][1]) / (ways[1][2] - ways[1][1]))
            differ += (ways[0][3] >= 0.5) != (ways[1][3] >= 0.5)
    return {"edits": len(narrower), "narrower": statistics.median(narrower), "verdicts_differ": differ}


if __name__ == "__main__":
    raise SystemExit(main())

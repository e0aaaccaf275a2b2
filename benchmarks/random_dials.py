"""Turn one to three dials of train_mlx.py at random within their ranges: the source that all others are compared with.

    nightshift run --proposer command --command 'python benchmarks/random_dials.py --device cpu --seed 0'

It works in the folder in which nightshift starts a coding agent. The same seed and the same task, which names the
attempts so far and the proposals that were turned down, give the same edit.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.script.dials import Choices, Dial, Range, Value, legible_dials, searched, set_dials, show

SCRIPT, TASK, IDEA = Path("train_mlx.py"), Path("TASK.md"), Path("IDEA.md")
MOST_TURNED = 3
DRAWS = 100  # for a value that differs from the present one


def another_value(dial: Dial, rng: random.Random) -> Value:
    """Draw from the dial's whole range, evenly on its scale, until the value differs from the present one."""
    draws = (drawn(dial, rng) for _ in range(DRAWS))
    return next((value for value in draws if show(value) != show(dial.value)), dial.value)


def drawn(dial: Dial, rng: random.Random) -> Value:
    match dial.span:
        case Choices(values):
            return rng.choice(values)
        case Range(low, high, log, whole):
            value = low * (high / low) ** rng.random() if log else rng.uniform(low, high)
            return round(value) if whole else float(show(value))
    raise ValueError(f"{dial.name} has no range")


def turned(script: str, device_kind: str, rng: random.Random) -> tuple[str, str]:
    """Return the edited script and a title that names the dials."""
    dials = searched(script, device_kind, legible_dials)
    chosen = rng.sample(dials, rng.randint(1, min(MOST_TURNED, len(dials))))
    values = {dial.name: another_value(dial, rng) for dial in chosen}
    title = ", ".join(f"{dial.name} {show(dial.value)} → {show(values[dial.name])}" for dial in chosen)
    return set_dials(script, device_kind, values), title


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "metal", "cuda"], required=True, help="whose presets are turned")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    args = parser.parse_args(argv)
    task = TASK.read_text() if TASK.exists() else ""
    script, title = turned(SCRIPT.read_text(), args.device, random.Random(f"{args.seed} {task}"))
    SCRIPT.write_text(script)
    IDEA.write_text(f"{title}\n\nDrawn at random from the ranges of these dials.\n")


if __name__ == "__main__":
    main()

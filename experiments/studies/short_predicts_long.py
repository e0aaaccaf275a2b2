"""Rank the arms of several studies of one set of edits, and correlate the ranks of each with those of the last.

    python experiments/studies/short_predicts_long.py TAG TAG …    the shortest budget first

It prints Spearman's rank correlation of the gains with those of the last study, its p value, and how many of the last
study's best quarter are in the better half by each shorter one: what a night would not lose that screens by short runs.
"""

import sys
from pathlib import Path

from scipy import stats

from agent.errors import NightshiftError
from agent.judging.studies import results_of
from agent.records.place import Place, read_night

QUARTER, HALF = 4, 2


def gains_of(tag: str) -> dict[str, float]:
    try:
        record = read_night(Place.of(Path("train_mlx.py")), tag)
    except NightshiftError as error:
        raise SystemExit(str(error)) from error
    if record.night.options.study is None:
        raise SystemExit(f"night {tag} is no study; name the tags of studies")
    found = results_of(record.night.options.study, record.attempts)
    return {arm.name: arm.gain for arm in found.arms if arm.gain is not None}


def main(tags: list[str]) -> None:
    if len(tags) < 2:
        raise SystemExit(__doc__)
    *shorter, longest = [(tag, gains_of(tag)) for tag in tags]
    for tag, gains in shorter:
        arms = sorted(gains.keys() & longest[1].keys())
        rank = stats.spearmanr([gains[arm] for arm in arms], [longest[1][arm] for arm in arms])
        best = sorted(arms, key=lambda arm: -longest[1][arm])[: max(1, len(arms) // QUARTER)]
        better = sorted(arms, key=lambda arm: -gains[arm])[: len(arms) // HALF]
        found = sum(arm in better for arm in best)
        print(
            f"{tag} against {longest[0]}: {len(arms)} arms, rank correlation {rank.statistic:+.2f} "
            f"(p {rank.pvalue:.2g}); {found} of the best {len(best)} are in its better half"
        )


if __name__ == "__main__":
    main(sys.argv[1:])

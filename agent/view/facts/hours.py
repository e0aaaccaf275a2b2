"""Add up where the hours of a night went. Pure."""

from agent.records.standing import REPEATED
from agent.view.facts.nouns import NightFacts


def hours(facts: NightFacts) -> tuple[tuple[str, float], ...]:
    """Return the hours of training, scoring and asking; other: of dry runs, and of runs that had to be repeated.

    Ideas are asked for while runs go on, so the sum may exceed the hours by the clock.
    """
    runs = [run for one in facts.attempts for run in one.runs]
    void_s = sum(run.train_s for run in runs if run.ending in REPEATED)
    untold_s = sum(one.spent_s for one in facts.attempts if not one.runs)  # rows have one time for all that was trained
    asked_s = sum(one.asked_s for one in facts.attempts)
    ideas_s = sum(one.spent_s for one in facts.ideas)
    seconds = {
        "training": sum(run.train_s for run in runs) - void_s + untold_s,
        "scoring": sum(run.scoring_s for run in runs),
        # sources were asked for the next idea, too, which is no attempt yet
        "asking": max(asked_s, sum(3600 * one.hours for one in facts.sources) - ideas_s),
        "other": void_s + sum(one.dry_run_s for one in facts.attempts),
    }
    return tuple((what, spent_s / 3600) for what, spent_s in seconds.items())

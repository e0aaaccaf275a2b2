"""Runs with a speed, for the tests of those who judge what became of them."""

from agent.experiment import Attempt, Ending, Proposal, Run, Summary


def timed(
    steps_s: float,
    ending: Ending = Ending.FINISHED,
    *,
    seed: int = 0,
    trained_s: float = 1000.0,
) -> Run:
    """A run of so many steps a second; it began as many seconds into the day as its seed says."""
    summary = Summary(training_seconds=trained_s, num_steps=round(steps_s * trained_s))
    return Run(seed, ending, 0, trained_s, summary, "", began=f"2026-11-22T00:00:{seed:02d}")


def attempt(number: int, *runs: Run) -> Attempt:
    return Attempt(number, None if number == 0 else 0, Proposal("", "", "", ""), "", "c", runs)

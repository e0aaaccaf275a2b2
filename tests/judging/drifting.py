"""Runs with a speed, for the tests of those who judge what became of them."""

from agent.experiment import Attempt, Ending, Proposal, Run, Score, Summary


def timed(
    steps_s: float,
    ending: Ending = Ending.FINISHED,
    *,
    seed: int = 0,
    at_s: int | None = None,
    trained_s: float = 1000.0,
    tokens_s: float | None = None,
    val_bpb: float | None = None,
) -> Run:
    """A run of so many steps a second; it began so many seconds into the day, by default its seed."""
    tokens_M = None if tokens_s is None else tokens_s * trained_s / 1e6
    said = Summary(training_seconds=trained_s, num_steps=round(steps_s * trained_s), total_tokens_M=tokens_M)
    score = None if val_bpb is None else Score(val_bpb, 1.0)
    began = f"2026-11-22T00:00:{seed if at_s is None else at_s:02d}"
    return Run(seed, ending, 0, trained_s, said, "", score, began=began)


def attempt(number: int, *runs: Run) -> Attempt:
    return Attempt(number, None if number == 0 else 0, Proposal("", "", "", ""), "", "c", runs)

"""Follow the best script through a night. Pure."""

from agent.experiment import Status
from agent.records.record import Record
from agent.records.summary import Scored


def progress(record: Record) -> list[tuple[int, Scored]]:
    """Return attempt → the best script after it, from the first one on; scores and intervals as they are known by now.

    A later decision may take a keep back, so a step may go up.
    """
    decided = sorted(
        (decision.id, attempt.number, decision) for attempt in record.attempts for decision in attempt.decisions
    )
    since: dict[int, int] = {}  # kept attempt → the decision since which it is kept
    best_after: dict[int, int | None] = {}
    latest = 0
    for order, number, decision in decided:
        latest = max(latest, number)
        if decision.status is Status.KEEP:
            since.setdefault(number, order)
        else:
            since.pop(number, None)
        best_after[latest] = max(since, key=lambda kept: (since[kept], kept), default=None)
    steps, best = [], None
    for number in range(len(record.attempts)):
        if number in best_after:
            best = Scored.of(record, record.attempt(best_after[number]))
        if best is not None:
            steps.append((number, best))
    return steps

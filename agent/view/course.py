"""Follow the best script, the dials and the tree of kept edits through a night. Pure."""

from collections import defaultdict
from collections.abc import Iterator

from agent.experiment import Attempt, Status
from agent.records.record import Record
from agent.records.summary import Scored, gain_bpb
from agent.script.dials import Value


def progress(record: Record) -> list[tuple[int, Scored]]:
    """Return attempt → the best script after it, from the first one on; scores and intervals as they are known by now.

    A later decision may take a keep back, so a step may go up.
    """
    decided = sorted((entry.id, one.number, entry.decision) for one in record.attempts for entry in one.decisions)
    since: dict[int, int] = {}  # kept attempt → the decision since which it is kept
    best_after: dict[int, int | None] = {}
    latest = 0
    for order, number, decision in decided:
        latest = max(latest, number)
        if decision.status is Status.KEEP:
            since.setdefault(number, order)
        else:
            since.pop(number, None)
        best_after[latest] = max(since, key=lambda one: (since[one], one), default=None)
    steps, best = [], None
    for number in record.by_number:
        if number in best_after:
            best = Scored.of(record, record.attempt(best_after[number]))
        if best is not None:
            steps.append((number, best))
    return steps


# ---- dials -----------------------------------------------------------------------------------------------------------


def settings(night: Record) -> dict[int, dict[str, Value]]:
    """Return attempt → dial → value, for each dial that an attempt of the night has turned.

    An attempt has the values of its parent, apart from those that it turned. Attempt 0 has the values from which its
    descendants turned them.
    """
    values: dict[int, dict[str, Value]] = {}
    first: dict[str, Value] = {}
    for attempt in night.attempts:  # a parent comes before its children
        turned = night.turned.get(attempt.number, {})
        above = values.get(attempt.parent, {}) if attempt.parent is not None else {}
        first |= {name: before for name, (before, _) in turned.items() if name not in above.keys() | first}
        values[attempt.number] = above | {name: after for name, (_, after) in turned.items()}
    return {number: first | turned for number, turned in values.items()}


# ---- the tree of kept edits ------------------------------------------------------------------------------------------


def tree(record: Record, most: int) -> list[tuple[Attempt, int]]:
    """Return the attempts that were ever kept and the overtaken ones that they merge, each below its parent.

    Beside each stands how far from the best script's line it is. Of a long night those of the largest gains are shown,
    at most so many, each below its nearest ancestor among them.
    """
    kept = [attempt for attempt in record.attempts if attempt.was_kept]
    kept.sort(key=lambda attempt: attempt.number and -(gain_bpb(attempt, record.parent(attempt)) or 0.0))
    shown = {attempt.number for attempt in kept[:most]}
    shown |= {attempt.proposal.merges for attempt in kept[:most] if attempt.proposal.merges is not None}
    line, ancestor = set[int](), record.best
    while ancestor is not None:
        line.add(ancestor.number)
        ancestor = record.parent(ancestor)
    children = defaultdict[int | None, list[Attempt]](list)
    for number in sorted(shown & record.by_number.keys()):
        parent = record.parent(record.by_number[number])
        while parent is not None and parent.number not in shown:
            parent = record.parent(parent)
        children[None if parent is None else parent.number].append(record.by_number[number])

    def below(parent: int | None, depth: int) -> Iterator[tuple[Attempt, int]]:
        for attempt in sorted(children[parent], key=lambda one: (one.number in line, one.number)):
            further = depth if attempt.number in line or parent is None else depth + 1
            yield attempt, further
            yield from below(attempt.number, further)

    return list(below(None, 0))

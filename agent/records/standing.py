"""Read where a night stands from its journal, by a few queries, without reading ten thousand attempts.

The result equals that from the attempts themselves (Standing.of); a test compares the two.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.experiment import VOID, Attempt, Ending, History, Night, Status, incumbent, kept, source_name
from agent.judging.noise import recent, recent_numbers
from agent.records.journal import Journal
from agent.records.ledger import rows, tag_of

LAST = "SELECT attempt, max(id) AS id FROM decisions GROUP BY attempt"
ATTEMPTS = f"""
    SELECT a.number, a.parent, a.title, a.source, a.without = '[]' AS is_idea, d.status, d.gain_bpb
    FROM attempts a LEFT JOIN ({LAST}) l ON l.attempt = a.number LEFT JOIN decisions d ON d.id = l.id
    ORDER BY a.number
"""
# of the night's own that count: not void, and not the first of a seed during which the machine went down
RUNS = f"""
    SELECT attempt, ending, coalesce(wall_s, 0) AS wall_s,
        coalesce(score_s, 0) + CASE WHEN audit IS NULL THEN 0 ELSE json_extract(audit, '$.wall_s') END AS scoring_s
    FROM runs r
    WHERE dawn = 0 AND ending IS NOT NULL AND ending NOT IN ({", ".join(f"'{ending}'" for ending in sorted(VOID))})
        AND NOT (ending = '{Ending.FELLED}' AND NOT EXISTS (
            SELECT 1 FROM runs e
            WHERE e.attempt = r.attempt AND e.seed = r.seed AND e.ending = '{Ending.FELLED}' AND e.id < r.id))
    ORDER BY id
"""


TOUCHED = f"""
    SELECT (SELECT count(status) FROM decisions WHERE id IN (SELECT id FROM ({LAST}))) AS decided,
        (SELECT count(*) FROM dawns) AS dawns,
        (SELECT attempt FROM decisions ORDER BY id DESC LIMIT 1) AS judged,
        (SELECT attempt FROM runs ORDER BY id DESC LIMIT 1) AS run
"""


@dataclass(frozen=True, slots=True)
class Brought:
    """Sum up the ideas of one source: attempts, keeps, gain and time."""

    source: str
    attempts: int
    kept: int
    gain_bpb: float
    spent_s: float


@dataclass(frozen=True, slots=True)
class Standing:
    """Hold what `nightshift status` shows of a night."""

    attempts: int
    counts: Mapping[Status, int]
    unfinished: Sequence[tuple[int, str]]  # number and title
    runs: Sequence[tuple[Ending, float]]  # those that count, and their seconds
    first: Attempt | None
    best: Attempt | None
    latest: Sequence[Attempt]  # the attempts that the noise is learnt from
    brought: Sequence[Brought]

    @classmethod
    def of(cls, history: History) -> "Standing":
        """Compute the standing from the attempts themselves."""
        return cls(
            attempts=len(history),
            counts=Counter(one.status for one in history if one.status is not None),
            unfinished=[(one.number, one.proposal.title) for one in history if one.decision is None],
            runs=[(run.ending, run.wall_s) for one in history for run in one.done_runs],
            first=history[0] if history else None,
            best=incumbent(history),
            latest=recent(history),
            brought=brought(history),
        )

    @classmethod
    def read(cls, journal: Journal) -> "Standing":
        rows, runs = journal.query(ATTEMPTS), journal.query(RUNS)
        statuses = {row["number"]: Status(row["status"]) if row["status"] else None for row in rows}
        keeps = {number for number, status in statuses.items() if status is Status.KEEP}
        wanted = recent_numbers([(row["number"], row["parent"]) for row in rows])
        known = {one.number: one for one in journal.attempts_among({0, *wanted, *keeps})} if rows else {}
        spent_s: dict[int, float] = defaultdict(float)
        for run in runs:
            spent_s[run["attempt"]] += run["wall_s"] + run["scoring_s"]
        ideas = (
            Brought(source_name(row["source"]), 1, number in keeps, gain_bpb(known.get(number), known), spent_s[number])
            for row in rows
            if row["is_idea"] and (number := row["number"]) and row["parent"] is not None
        )
        return cls(
            attempts=len(rows),
            counts=Counter(status for status in statuses.values() if status is not None),
            unfinished=[(row["number"], row["title"]) for row in rows if row["status"] is None],
            runs=[(Ending(run["ending"]), float(run["wall_s"])) for run in runs],
            first=known.get(0),
            best=next(reversed(kept([known[number] for number in sorted(keeps)])), None),
            latest=[known[number] for number in wanted],
            brought=by_source(ideas),
        )


def brought(history: History) -> list[Brought]:
    """Return a row for every source that has proposed."""
    return by_source(
        Brought(source_name(one.proposal.source), 1, one.status is Status.KEEP, gain_bpb(one, history), one.spent_s)
        for one in history
        if one.parent is not None and one.is_idea
    )


def gain_bpb(attempt: Attempt | None, history: History | Mapping[int, Attempt]) -> float:
    """Return the gain of a kept attempt, by the judge's estimate or else the two scores; 0 if it is not kept."""
    if attempt is None or attempt.status is not Status.KEEP or attempt.decision is None or attempt.parent is None:
        return 0.0
    if attempt.decision.gain_bpb is not None:
        return max(0.0, attempt.decision.gain_bpb)
    before, after = history[attempt.parent].val_bpb, attempt.val_bpb
    return max(0.0, before - after) if before is not None and after is not None else 0.0


def by_source(ideas: Iterable[Brought]) -> list[Brought]:
    """Sum up the ideas of each source."""
    groups: dict[str, list[Brought]] = defaultdict(list)
    for idea in ideas:
        groups[idea.source].append(idea)
    return [
        Brought(
            name,
            len(ones),
            sum(one.kept for one in ones),
            sum(one.gain_bpb for one in ones),
            sum(one.spent_s for one in ones),
        )
        for name, ones in groups.items()
    ]


def is_up_to_date(text: str, night: Night, journal: Journal) -> bool:
    """Return whether a ledger is up to date with a journal, so that it need not be rendered.

    Every rendering is of the whole night, so if the rows of the attempts changed last are there, all others are. A
    night with a dawn is always rendered, since dawn changes many attempts at once.
    """
    (touched,) = journal.query(TOUCHED)
    mine = {line for line in text.split("\n") if tag_of(line) == night.tag}
    if touched["dawns"] or len(mine) != touched["decided"]:
        return False
    latest = journal.attempts_among({touched["judged"], touched["run"]} - {None})
    others = {one.parent for one in latest if one.parent is not None} - {one.number for one in latest}
    parents = journal.attempts_among(others)
    due = rows(night, [*parents, *latest])[sum(one.decision is not None for one in parents) :]
    return mine.issuperset(due)

"""Read where a night stands from its journal, by a few queries, without reading ten thousand attempts.

The result equals that from the attempts themselves (Standing.of); a test compares the two.
"""

import hashlib
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from agent.errors import NightError
from agent.experiment import (
    VOID,
    Attempt,
    Ending,
    History,
    Noise,
    Status,
    incumbent,
    kept,
    source_name,
)  # fmt: skip
from agent.files import read_plain, write_own
from agent.judging.recent import Edge, recent
from agent.records.journal import Journal

SOURCE = "CASE instr(source, ':') WHEN 0 THEN source ELSE substr(source, 1, instr(source, ':') - 1) END"  # source_name
IDEA = "without = '[]' AND parent IS NOT NULL"
ATTEMPTS = f"""
    SELECT {SOURCE} AS source, {IDEA} AS is_idea, d.status, count(*) AS attempts,
        total(json_extract(dry_run, '$.wall_s')) AS dry_run_s,
        group_concat(CASE WHEN d.status IS NULL OR d.status = '{Status.KEEP}' THEN number END) AS numbers
    FROM attempts a LEFT JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE attempt = a.number)
    GROUP BY 1, 2, 3
"""
COUNTS = "ending NOT IN ({})".format(", ".join(f"'{ending}'" for ending in sorted(VOID)))
RUNS = f"""
    SELECT {SOURCE} AS source, {IDEA} AS is_idea, dawn = 0 AS of_night, ending, {COUNTS} AS counts,
        count(*) AS runs, total(wall_s) AS train_s, max(ended) AS ended,
        total(score_s) + total(json_extract(audit, '$.wall_s'))
            + total(json_extract(holdout, '$.wall_s')) + total(json_extract(holdout, '$.audit.wall_s')) AS scoring_s
    FROM runs r JOIN attempts a ON a.number = r.attempt WHERE ending IS NOT NULL
    GROUP BY 1, 2, 3, 4, 5
"""
TIMES = f"SELECT ending, coalesce(wall_s, 0) AS wall_s FROM runs r WHERE dawn = 0 AND ending IS NOT NULL AND {COUNTS}"


@dataclass(frozen=True, slots=True)
class Brought:
    """Sum up the ideas of one source: attempts, keeps, gain and time."""

    source: str
    attempts: int
    kept: int
    gain_bpb: float
    spent_s: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """Say how many runs were stopped early, and what that saved."""

    stopped: int
    runs: int  # all that count
    saved_s: float
    share: float  # of the training that there would have been

    @classmethod
    def of(cls, runs: Sequence[tuple[Ending, float]]) -> "Stopped | None":
        """Compare the runs that were stopped with those that finished; None where there are not both."""
        whole_s = [wall_s for ending, wall_s in runs if ending is Ending.FINISHED]
        stopped_s = [wall_s for ending, wall_s in runs if ending is Ending.HOPELESS]
        if not stopped_s or not whole_s:
            return None
        typical_s = statistics.median(whole_s)
        saved_s = sum(max(0.0, typical_s - wall_s) for wall_s in stopped_s)
        share = saved_s / (saved_s + sum(wall_s for _, wall_s in runs))
        return cls(len(stopped_s), len(runs), saved_s, share)


@dataclass(frozen=True, slots=True)
class Spent:
    """Add up the seconds of a night, dawn's included, apart from those of asking for ideas."""

    training_s: float
    scoring_s: float
    other_s: float  # of dry runs, and of runs that had to be repeated

    @classmethod
    def of(cls, history: History) -> "Spent":
        runs = [run for one in history for run in one.runs]
        void_s = sum(run.wall_s for run in runs if run.ending in VOID)
        dry_runs_s = sum(one.dry_run.wall_s for one in history if one.dry_run is not None)
        training_s = sum(run.wall_s for run in runs)
        return cls(training_s - void_s, sum(run.spent_s for run in runs) - training_s, void_s + dry_runs_s)


@dataclass(frozen=True, slots=True)
class Standing:
    """Hold what `nightshift status` shows of a night."""

    attempts: int
    counts: Mapping[Status, int]  # as verdicts() counts
    unfinished: Sequence[tuple[int, str]]  # number and title
    stopped: Stopped | None
    spent: Spent
    ended: str | None  # of the last run
    first: Attempt | None
    best: Attempt | None
    noise: Noise | None
    brought: Sequence[Brought]

    @classmethod
    def of(cls, history: History) -> "Standing":
        """Compute the standing from the attempts themselves."""
        from agent.judging.noise import noise

        return cls(
            attempts=len(history),
            counts=verdicts(history),
            unfinished=[(one.number, one.proposal.title) for one in history if one.decision is None],
            stopped=Stopped.of([(run.ending, run.wall_s) for one in history for run in one.done_runs]),
            spent=Spent.of(history),
            ended=max((run.ended for one in history for run in one.runs if run.ended is not None), default=None),
            first=history[0] if history else None,
            best=incumbent(history),
            noise=noise(history),
            brought=brought(history),
        )

    @classmethod
    def read(cls, journal: Journal, *, with_noise: bool = True) -> "Standing":
        """Read the standing; without its noise, which takes a second to learn where it is not remembered."""
        attempts, runs = journal.query(ATTEMPTS), journal.query(RUNS)
        numbers: dict[str | None, list[int]] = defaultdict(list)
        counts: Counter[Status] = Counter()
        for row in attempts:
            numbers[row["status"]] += map(int, (row["numbers"] or "").split(",") if row["numbers"] else ())
            if row["status"] is not None and row["is_idea"]:
                counts[Status(row["status"])] += row["attempts"]
        keeps = journal.attempts_among(numbers[Status.KEEP])
        known = {one.number: one for one in (*journal.attempts_among(_around(keeps)), *keeps)}
        spent_s: dict[str, float] = defaultdict(float)
        for run in runs:
            if run["is_idea"] and run["of_night"] and run["counts"]:
                spent_s[run["source"]] += run["train_s"] + run["scoring_s"]
        ideas = [Brought(row["source"], row["attempts"], 0, 0.0, 0.0) for row in attempts if row["is_idea"]]
        ideas += [Brought(name, 0, 0, 0.0, wall_s) for name, wall_s in spent_s.items()]
        ideas += [
            Brought(source_name(one.proposal.source), 0, 1, gain_bpb(one, known), 0.0)
            for one in keeps
            if one.is_idea and one.parent is not None
        ]
        open_ones = ",".join(map(str, numbers[None]))
        titles = journal.query(f"SELECT number, title FROM attempts WHERE number IN ({open_ones}) ORDER BY number")
        stops = any(run["ending"] == Ending.HOPELESS for run in runs)
        void_s = sum(run["train_s"] for run in runs if run["ending"] in VOID)
        return cls(
            attempts=sum(row["attempts"] for row in attempts),
            counts=counts,
            unfinished=[(row["number"], row["title"]) for row in titles],
            stopped=Stopped.of([(Ending(one), float(wall_s)) for one, wall_s in journal.query(TIMES)])
            if stops
            else None,
            spent=Spent(
                sum(run["train_s"] for run in runs) - void_s,
                sum(run["scoring_s"] for run in runs),
                void_s + sum(row["dry_run_s"] for row in attempts),
            ),
            ended=max((run["ended"] for run in runs if run["ended"] is not None), default=None),
            first=known.get(0),
            best=next(reversed(kept(keeps)), None),
            noise=noise_of_night(journal) if with_noise else None,
            brought=summed(ideas),
        )


def _around(keeps: Iterable[Attempt]) -> set[int]:
    """Return attempt 0 and the parents of these, where the gain of one follows from both scores."""
    parents = {one.parent for one in keeps if one.parent is not None and one.decision and one.decision.gain_bpb is None}
    return {0} | parents


# ---- noise -----------------------------------------------------------------------------------------------------------

NOISE = "noise.json"  # in a night's folder: the noise as it was learnt last, which takes a second
LEARNT = 1  # raise it where judging/noise.py comes to learn another noise from the same attempts
# What has come since: the latest decisions with what follows them, and the latest runs with their scores. More than are
# made at once, so that a change of any of them is seen.
LEARNT_FROM = """
    SELECT (SELECT json_group_array(json_array(id, (SELECT settled FROM attempts WHERE number = attempt)))
            FROM (SELECT id, attempt FROM decisions ORDER BY id DESC LIMIT 64)) AS decided,
        (SELECT json_group_array(json_array(id, ending, val_bpb))
            FROM (SELECT id, ending, val_bpb FROM runs WHERE ending IS NOT NULL ORDER BY id DESC LIMIT 64)) AS measured
"""


def noise_of_night(journal: Journal) -> Noise | None:
    """Return the noise of a night, as it was learnt last where nothing has come that would change it."""
    state = _learnt_from(journal)
    with suppress(OSError, NightError, ValueError, TypeError, LookupError, RecursionError):
        known = json.loads(read_plain(journal.folder / NOISE))
        if known["of"] == state:
            return Noise(**known["noise"]) if known["noise"] is not None else None
    from agent.judging.noise import noise

    edges = [Edge(*row) for row in journal.query("SELECT number, parent FROM attempts ORDER BY number")]
    return _remember(journal, noise(journal.attempts_among(edge.number for edge in recent(edges))), state)


def remember_noise(journal: Journal, found: Noise | None) -> Noise | None:
    """Write down what a night has learnt of its noise by now, for `status`, and return it."""
    return _remember(journal, found, _learnt_from(journal))


def _learnt_from(journal: Journal) -> list[str | int]:
    (row,) = journal.query(LEARNT_FROM)
    digest = hashlib.sha256(f"{row['decided']} {row['measured']}".encode()).hexdigest()
    return [LEARNT, digest]


def _remember(journal: Journal, found: Noise | None, state: list[str | int]) -> Noise | None:
    with suppress(OSError, NightError):  # a reader may have no right to write there, and a disk may be full
        write_own(journal.folder / NOISE, json.dumps({"of": state, "noise": asdict(found) if found else None}))
    return found


# ---- verdicts --------------------------------------------------------------------------------------------------------


def verdicts(history: History) -> Counter[Status]:
    """Count how many ideas were kept, discarded or crashed; the baseline and dawn's questions are no ideas."""
    return Counter(one.status for one in history if _is_edit(one) and one.status is not None)


# ---- what sources brought --------------------------------------------------------------------------------------------


def brought(history: History) -> list[Brought]:
    """Return a row for every source that has proposed."""
    return summed(
        Brought(source_name(one.proposal.source), 1, one.status is Status.KEEP, gain_bpb(one, history), one.spent_s)
        for one in history
        if _is_edit(one)
    )


def _is_edit(attempt: Attempt) -> bool:
    return attempt.parent is not None and attempt.is_idea


def gain_bpb(attempt: Attempt | None, history: History | Mapping[int, Attempt]) -> float:
    """Return the gain of a kept attempt, by the judge's estimate or else the two scores; 0 if it is not kept."""
    if attempt is None or attempt.status is not Status.KEEP or attempt.decision is None or attempt.parent is None:
        return 0.0
    if attempt.decision.gain_bpb is not None:
        return max(0.0, attempt.decision.gain_bpb)
    before, after = history[attempt.parent].val_bpb, attempt.val_bpb
    return max(0.0, before - after) if before is not None and after is not None else 0.0


def summed(ideas: Iterable[Brought]) -> list[Brought]:
    """Sum up the ideas of each source."""
    groups: dict[str, list[Brought]] = defaultdict(list)
    for idea in ideas:
        groups[idea.source].append(idea)
    return [
        Brought(
            name,
            sum(one.attempts for one in ones),
            sum(one.kept for one in ones),
            sum(one.gain_bpb for one in ones),
            sum(one.spent_s for one in ones),
        )
        for name, ones in groups.items()
    ]

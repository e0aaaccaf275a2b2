"""Dawn: which run would tell most about the night's result, and what the runs have told. Pure.

The champion, the last attempt kept, meets attempt 0 on seeds and text that no choice of the night has seen. Then its
edits are taken out again, one at a time, the doubtful ones first: what the champion does not miss is a passenger. Half
of the dials of an edit that turns many can be one as well.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from agent.experiment import (
    Attempt,
    Dawn,
    Decision,
    Ending,
    History,
    Kind,
    Run,
    Score,
    Status,
    edit_of,
    incumbent,
    is_half,
    named,
)
from agent.judging.champion import Edit, Posterior, fresh, posteriors, seen, taken_out
from agent.judging.failures import fault
from agent.judging.intervals import Interval, Spread, difference, mean
from agent.judging.noise import Knowledge, know, measured, seed_effects
from agent.judging.trust import trusted

FRESH = 4  # runs of attempt 0 and of the champion each, before any edit is doubted
LAST = 2  # runs of the script without all passengers
MOST = 8  # runs without one edit
TELLING = 0.002  # sigma: a run that is expected to bring less is not worth its minutes
SOURCE = "dawn"
QUESTION = "a question of dawn"  # no idea: the reason of its discard


@dataclass(frozen=True, slots=True)
class Again:
    """Ask for one more run, with a fresh seed, of an attempt as it is."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Without:
    """Ask for one run of the champion's script without these edits: a new attempt whose proposal says so."""

    edits: tuple[int, ...]


DawnRun = Again | Without


@dataclass(frozen=True, slots=True)
class Findings:
    champion: int
    script: int | None  # the attempt whose script is confirmed; None where no gain is
    fresh_runs: int  # at this dawn, of attempt 0 and the champion together
    recorded_bpb: float | None  # the champion's gain over attempt 0, by the night's own scores
    believed_bpb: float | None  # the same gain, by the shrunken estimates of the judge
    honest: Interval | None  # on fresh seeds; None until attempt 0 and champion have two each
    holdout: Interval | None  # the same runs on text that no run was judged by; over its documents, too, where known
    over: str  # what the holdout's interval covers
    fitted: Interval | None  # the gain on the validation text less that on the holdout, over seeds and both texts
    edits: tuple[Edit, ...]  # in the order in which they were kept; after each, its halves that were asked about
    passengers: tuple[int, ...]  # to be dropped
    dropping: Interval | None  # measured gain of dropping them over the champion; None if it was not measured
    stays: str | None  # why doubtful edits are not dropped after all

    @property
    def is_fitted(self) -> bool:
        """Return whether the gain on the validation text exceeds that on the holdout by more than chance."""
        return self.fitted is not None and self.fitted.low_bpb > 0

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Findings":
        """Read findings from the facts in a journal."""
        known = {field.name: facts[field.name] for field in fields(cls)}
        for name in ("honest", "holdout", "fitted", "dropping"):
            known[name] = Interval(**known[name]) if known[name] else None
        edits = tuple(Edit(**one | {"effect": Interval(**one["effect"])}) for one in known["edits"])
        return cls(**known | {"edits": edits, "passengers": tuple(known["passengers"])})


@dataclass(frozen=True, slots=True)
class Text:
    """Hold how far the champion's gain on one text varies with the choice of its documents."""

    spread: Spread
    pieces: str  # as in "212 documents"


def next_run(
    history: History,
    runs_left: int,
    *,
    impossible: Collection[tuple[int, ...]] = (),
    divisible: Collection[int] = (),
    at_least: int = FRESH,
    dawn: int = 1,
) -> DawnRun | None:
    """Return the most useful run; None if there is nothing to confirm, or no run would change the findings.

    impossible: sets of edits that cannot be taken out, because later edits need their lines. divisible: edits of so
    many dials that a half of them is worth asking about. at_least: runs of attempt 0 and of the champion.
    """
    champion = incumbent(history)
    if runs_left < 1 or champion is None or champion.number == 0:
        return None
    rivals = sorted((history[0], champion), key=lambda one: len(fresh(one, dawn)))
    if len(fresh(rivals[0], dawn)) < at_least:
        return Again(rivals[0].number)
    doubts = posteriors(history, champion, dawn, divisible)
    passengers = _passengers(doubts, impossible)
    wanted = _last_runs(history, champion, passengers, dawn)
    if runs_left > wanted:
        run = _most_telling(history, champion, doubts, impossible)
        if run is not None:
            return run
    return _run_without(history, champion, passengers) if wanted > 0 else None


def as_expected(history: History, in_flight: Collection[tuple[int, int]], dawn: int = 1) -> History:
    """Return the history with a score for each run of this dawn that has none yet: the one that is expected of it.

    in_flight: attempt and seed of the runs that have begun. So a run is chosen in the light of those beside it.
    """
    unscored = {one.number: [run.seed for run in one.dawn_runs(dawn) if run.score is None
                             and run.ending is Ending.FINISHED] for one in history}  # fmt: skip
    for number, seed in in_flight:
        unscored[number].append(seed)
    return tuple(
        _with_scores(history, one, unscored[one.number], dawn) if unscored[one.number] else one for one in history
    )


def _with_scores(history: History, attempt: Attempt, seeds: Sequence[int], dawn: int) -> Attempt:
    score = Score(_expected_bpb(history, attempt, dawn), 0.0)
    runs = tuple(run for run in attempt.runs if run.seed not in seeds)
    return replace(
        attempt, runs=(*runs, *(Run(seed, Ending.FINISHED, 0, 0.0, None, "", score, dawn) for seed in seeds))
    )


def _expected_bpb(history: History, attempt: Attempt, dawn: int) -> float | None:
    """Return the mean of the attempt's scores at this dawn; without any, that of the night, or of its posterior."""
    known = tuple(fresh(attempt, dawn).values()) or attempt.scores_bpb
    champion = incumbent(history)
    if known or champion is None or champion is attempt:
        return mean(known) if known else None
    expected = _expected_bpb(history, champion, dawn)
    effects = {one.edit.number: one.edit.effect.mean_bpb for one in posteriors(history, champion, dawn, ())}
    lost = sum(effects.get(edit_of(number), 0.0) / (2 if is_half(number) else 1) for number in attempt.proposal.without)
    return None if expected is None else expected + lost


def findings(
    history: History,
    *,
    impossible: Collection[tuple[int, ...]] = (),
    divisible: Collection[int] = (),
    dawn: int = 1,
    texts: Mapping[str, Text] | None = None,
) -> Findings | None:
    """Return what dawn has found so far; None if only attempt 0 is kept. texts: by the names of their splits."""
    champion = incumbent(history)
    if champion is None or champion.number == 0:
        return None
    first = history[0]
    recorded = mean(first.scores_bpb) - mean(champion.scores_bpb) if champion.scores_bpb else None
    known = know(measured(history))
    believed = recorded if known is None or champion.number not in known.place else _gain_bpb(known, champion.number)
    doubts = posteriors(history, champion, dawn, divisible)
    passengers = _passengers(doubts, impossible)
    last = taken_out(history, champion, passengers)
    paired = bool(seed_effects(measured(seen(history, dawn))))
    dropping = _interval(difference(fresh(champion, dawn), fresh(last, dawn), paired)) if last else None
    why = _objection(last, dawn, dropping) if passengers else None
    verb, whom = ("stays", "it") if len(passengers) == 1 else ("stay", "them")
    stays = f"{names(passengers)} {verb}: the script without {whom} {why}" if why else None
    passengers = () if why else passengers
    honest = _interval(difference(fresh(first, dawn), fresh(champion, dawn), paired))
    held, fitted = _on_holdout(first, champion, dawn, paired, texts or {})
    over = "the choice of seeds" + (f" and of {texts['holdout'].pieces}" if texts and "holdout" in texts else "")
    gains = honest is not None and honest.low_bpb > 0
    dropped = last.number if last is not None and passengers else champion.number
    return Findings(
        champion=champion.number,
        script=dropped if gains else None,
        fresh_runs=len(fresh(first, dawn)) + len(fresh(champion, dawn)),
        recorded_bpb=recorded,
        believed_bpb=believed,
        honest=honest,
        holdout=held,
        over=over,
        fitted=fitted,
        edits=tuple(one.edit for one in doubts if not is_half(one.edit.number) or _is_told(one, passengers)),
        passengers=passengers,
        dropping=dropping,
        stays=stays,
    )


def _interval(found: tuple[float, Spread] | None) -> Interval | None:
    return found[1].around(found[0]) if found else None


def _on_holdout(
    first: Attempt, champion: Attempt, dawn: int, paired: bool, texts: Mapping[str, Text]
) -> tuple[Interval | None, Interval | None]:
    """Return the gain on the holdout, and how much larger the gain on the validation text is.

    A run has the same weights on both texts, so most of its luck cancels in the difference. Without the spread of both
    texts the difference has no interval, and is None.
    """
    before, after = (fresh(one, dawn, holdout=True) for one in (first, champion))
    gain = difference(before, after, paired)
    if gain is None:
        return None, None
    mean_bpb, spread = gain
    held = (spread + texts["holdout"].spread if "holdout" in texts else spread).around(mean_bpb)
    if not {"holdout", "validation"} <= texts.keys():
        return held, None
    gaps = [
        {seed: fresh(one, dawn)[seed] - bpb for seed, bpb in there.items()}
        for one, there in ((first, before), (champion, after))
    ]
    apart = difference(gaps[0], gaps[1], paired)
    assert apart is not None
    return held, (apart[1] + texts["validation"].spread + texts["holdout"].spread).around(apart[0])


def _objection(last: Attempt | None, dawn: int, dropping: Interval | None) -> str | None:
    """Say why the script without all passengers may not replace the champion: each of its runs has to succeed."""
    if last is None:
        return "was never run"
    why = fault(last)
    if why is not None:
        return f"failed: {why}"
    verdict = trusted(Decision(Kind.KEPT, ""), last, None)
    if verdict.status is not Status.KEEP:
        return f"failed its {verdict.reason}"
    ran = len(fresh(last, dawn))
    if ran < LAST:
        return f"ran {ran} time{'s' * (ran != 1)} by now, and {LAST} are needed"
    return "is worse" if dropping is not None and dropping.high_bpb < 0 else None


def _is_told(half: Posterior, passengers: tuple[int, ...]) -> bool:
    """Return whether a half was asked about or is dropped, and its edit stays."""
    number = half.edit.number
    return edit_of(number) not in passengers and (half.edit.runs > 0 or number in passengers)


def names(edits: Collection[int]) -> str:
    return " and ".join(named(number) for number in sorted(edits, key=edit_of))


def adoption(history: History, dawn: Dawn | None) -> dict[int, Decision]:
    """Return the decisions by which a night goes on from the script that its last dawn has confirmed, if any."""
    champion = incumbent(history)
    if dawn is None or dawn.ended is None or not dawn.findings or champion is None:
        return {}
    found = Findings.of(dawn.findings)
    if found.script is None or champion.number != found.champion or found.script == found.champion:
        return {}
    script = history[found.script]
    if script.number == champion.parent:
        return {champion.number: Decision(Kind.PASSENGER, "a passenger, by dawn's runs")}
    if script.kind is not Kind.QUESTION:
        return {}  # it was taken over once, and has fallen since
    return {script.number: Decision(Kind.ADOPTED, f"confirmed at dawn: {script.proposal.title}")}


def _passengers(doubts: tuple[Posterior, ...], impossible: Collection[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the edits that are not worth keeping; only the worst if not all can be taken out at once.

    Of an edit that is worth keeping, a half is dropped if runs without it, or without the other half, say that it does
    harm; without such runs, each half is expected to bring half of what the edit does.
    """
    open_ = [one for one in doubts if one.testable and (one.edit.number,) not in impossible]
    worst: dict[int, Posterior] = {}
    for one in sorted(open_, key=lambda one: (is_half(one.edit.number), one.keeping)):
        if one.keeping < 0:
            worst.setdefault(edit_of(one.edit.number), one)
    worst_first = [one.edit.number for one in sorted(worst.values(), key=lambda one: one.keeping)]
    while worst_first and tuple(sorted(worst_first)) in impossible:
        worst_first.pop()
    return tuple(sorted(worst_first))


def _last_runs(history: History, champion: Attempt, passengers: tuple[int, ...], dawn: int) -> int:
    """Return how many more runs the script without passengers needs before it may replace the champion."""
    if not passengers:
        return 0
    last = taken_out(history, champion, passengers)
    if last is None:
        return LAST
    return max(0, LAST - len(fresh(last, dawn))) if fault(last) is None else 0


def _most_telling(
    history: History, champion: Attempt, doubts: tuple[Posterior, ...], impossible: Collection[tuple[int, ...]]
) -> DawnRun | None:
    open_ = [one for one in doubts if one.testable and one.edit.runs < MOST and (one.edit.number,) not in impossible]
    best = max(open_, key=Posterior.telling, default=None)
    if best is None or best.telling() < TELLING:
        return None
    return _run_without(history, champion, (best.edit.number,))


def _run_without(history: History, champion: Attempt, edits: tuple[int, ...]) -> DawnRun:
    known = taken_out(history, champion, edits)
    return Without(edits) if known is None else Again(known.number)


def _gain_bpb(known: Knowledge, number: int) -> float:
    return (known.belief.mean(known.place[number]) - known.belief.mean(0)) * known.sigma_bpb

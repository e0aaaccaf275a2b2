"""Dawn: which run would tell most about the night's result, and what the runs have told. Pure.

The champion, the last attempt kept, meets attempt 0 on seeds and text that no choice of the night has seen. Then its
edits are taken out again, one at a time, the doubtful ones first: what the champion does not miss is a passenger.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from agent.experiment import Attempt, Dawn, Decision, History, Kind, Run, Status, incumbent
from agent.judging.belief import SIZE, STEP, TINY, Array, knowledge_gradient, likelihood, worths
from agent.judging.failures import fault
from agent.judging.intervals import Interval, Spread, difference, mean
from agent.judging.judge import trusted
from agent.judging.noise import Knowledge, know, measured, seed_effects
from agent.judging.simplicity import price_of

FRESH = 4  # runs of attempt 0 and of the champion each, before any edit is doubted
LAST = 2  # runs of the script without all passengers
MOST = 8  # runs without one edit
PRICE = 2.0  # sigma that a person would pay to be rid of a worthless edit: it is read, understood and kept for good
TELLING = 0.002  # sigma: a run that is expected to bring less is not worth its minutes
SOURCE = "dawn"
QUESTION = "a question of dawn"  # no idea: the reason of its discard


@dataclass(frozen=True, slots=True)
class Again:
    """One more run, with a fresh seed, of an attempt as it is."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Without:
    """One run of the champion's script without these edits: a new attempt whose proposal says so."""

    edits: tuple[int, ...]


DawnRun = Again | Without


@dataclass(frozen=True, slots=True)
class Edit:
    """Hold a kept edit's effect on the champion, by the night's runs and by those without the edit."""

    number: int
    effect: Interval
    worthless: float  # the probability that it brings nothing or does harm
    runs: int  # of the champion without it


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
    edits: tuple[Edit, ...]  # in the order in which they were kept
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
    impossible: Collection[tuple[int, ...]] = (),
    fresh: int = FRESH,
    dawn: int = 1,
) -> DawnRun | None:
    """Return the most useful run; None if there is nothing to confirm, or no run would change the findings.

    impossible: sets of edits that cannot be taken out, because later edits need their lines.
    """
    champion = incumbent(history)
    if runs_left < 1 or champion is None or champion.number == 0:
        return None
    rivals = sorted((history[0], champion), key=lambda one: len(_fresh(one, dawn)))
    if len(_fresh(rivals[0], dawn)) < fresh:
        return Again(rivals[0].number)
    doubts = _doubts(history, champion, dawn)
    passengers = _passengers(doubts, impossible)
    wanted = _last_runs(history, champion, passengers, dawn)
    if runs_left > wanted:
        run = _most_telling(history, champion, doubts, impossible)
        if run is not None:
            return run
    return _run_without(history, champion, passengers) if wanted > 0 else None


def findings(
    history: History,
    impossible: Collection[tuple[int, ...]] = (),
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
    doubts = _doubts(history, champion, dawn)
    passengers = _passengers(doubts, impossible)
    last = _taken_out(history, champion, passengers)
    paired = bool(seed_effects(measured(_seen(history, dawn))))
    dropping = _interval(difference(_fresh(champion, dawn), _fresh(last, dawn), paired)) if last else None
    why = _objection(last, dawn, dropping) if passengers else None
    verb, whom = ("stays", "it") if len(passengers) == 1 else ("stay", "them")
    stays = f"{names(passengers)} {verb}: the script without {whom} {why}" if why else None
    passengers = () if why else passengers
    honest = _interval(difference(_fresh(first, dawn), _fresh(champion, dawn), paired))
    held, fitted = _on_holdout(first, champion, dawn, paired, texts or {})
    over = "the choice of seeds" + (f" and of {texts['holdout'].pieces}" if texts and "holdout" in texts else "")
    gains = honest is not None and honest.low_bpb > 0
    dropped = last.number if last is not None and passengers else champion.number
    return Findings(
        champion=champion.number,
        script=dropped if gains else None,
        fresh_runs=len(_fresh(first, dawn)) + len(_fresh(champion, dawn)),
        recorded_bpb=recorded,
        believed_bpb=believed,
        honest=honest,
        holdout=held,
        over=over,
        fitted=fitted,
        edits=tuple(doubt.edit for doubt in doubts),
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
    before, after = (_fresh(one, dawn, holdout=True) for one in (first, champion))
    gain = difference(before, after, paired)
    if gain is None:
        return None, None
    mean_bpb, spread = gain
    held = (spread + texts["holdout"].spread if "holdout" in texts else spread).around(mean_bpb)
    if not {"holdout", "validation"} <= texts.keys():
        return held, None
    gaps = [
        {seed: _fresh(one, dawn)[seed] - bpb for seed, bpb in there.items()}
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
    ran = len(_fresh(last, dawn))
    if ran < LAST:
        return f"ran {ran} time{'s' * (ran != 1)} by now, and {LAST} are needed"
    return "is worse" if dropping is not None and dropping.high_bpb < 0 else None


def names(edits: Collection[int]) -> str:
    return " and ".join(f"#{number}" for number in edits)


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


@dataclass(frozen=True, slots=True)
class Posterior:
    """The posterior of one edit's effect on the champion."""

    edit: Edit
    worth: Array  # (effects,) probability times worth
    blind: float  # sigma: how well the champion itself is known
    testable: bool  # False where the champion does not run without it

    @property
    def keeping(self) -> float:
        return float(self.worth.sum())

    def telling(self, most: int = 3) -> float:
        """Return the knowledge gradient per run, of up to `most` runs of the champion without the edit."""
        return knowledge_gradient(self.worth, [(1 / n + self.blind**2) ** 0.5 for n in range(1, most + 1)])


def _doubts(history: History, champion: Attempt, dawn: int) -> tuple[Posterior, ...]:
    known = know(measured(_seen(history, dawn)))
    chain = edits_of(champion, history)
    if known is None or any(one.number not in known.place for one in (*chain, champion)):
        return ()  # where seeds move nothing, the night's scores were exact
    return tuple(_doubt(known, history, champion, one, dawn) for one in chain)


def edits_of(champion: Attempt, history: History) -> tuple[Attempt, ...]:
    """Return the kept edits that a script is made of, without those that an earlier dawn has taken out."""
    line, out = [champion], set(champion.proposal.without)
    while (parent := line[-1].parent) is not None:
        line.append(history[parent])
        out |= set(history[parent].proposal.without)
    return tuple(one for one in reversed(line[:-1]) if one.is_idea and one.number not in out)


def _seen(history: History, dawn: int) -> list[Attempt]:
    """Return the history with this dawn's runs counted as the night's; leave out attempts without runs of the night."""
    return [_as_seen(one, dawn) for one in history if one.done_runs]


def _as_seen(attempt: Attempt, dawn: int) -> Attempt:
    return replace(attempt, runs=tuple(replace(run, dawn=0) if run.dawn == dawn else run for run in attempt.runs))


def _doubt(known: Knowledge, history: History, champion: Attempt, kept: Attempt, dawn: int) -> Posterior:
    """Return the posterior of an edit: the night's, times the likelihood of the champion's runs without it."""
    assert kept.parent is not None
    belief, top = known.belief, known.place[champion.number]
    merit = belief.merit(top)
    points = np.arange(SIZE) * STEP
    blind = float(np.sqrt(merit @ points**2 - (merit @ points) ** 2))
    differences, probability = belief.effect(known.place[kept.number])
    without = _taken_out(history, champion, (kept.number,))
    scores = known.merits(_as_seen(without, dawn)) if without is not None and kept is not champion else ()
    if scores:
        centre = round(float(np.median(scores)))
        told = np.convolve(merit, likelihood(scores, centre)[::-1])  # of every difference champion - without
        at = belief.nodes[top].centre - centre + np.arange(1 - SIZE, SIZE)
        probability = probability * (np.interp(differences, at, told, left=0, right=0) + TINY)
        probability = probability / probability.sum()
    runs = len(scores) if kept is not champion else len(_fresh(without, dawn)) if without else 0
    edit = Edit(
        kept.number,
        _quantiles(differences * STEP * known.sigma_bpb, probability),
        float(probability[differences <= 0].sum()),
        runs,
    )
    testable = without is None or fault(without) is None
    return Posterior(edit, probability * worths(differences, price_of(kept, history, known, PRICE)), blind, testable)


def _passengers(doubts: tuple[Posterior, ...], impossible: Collection[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the edits that are not worth keeping; only the worst if not all can be taken out at once."""
    open_ = [one for one in doubts if one.testable and (one.edit.number,) not in impossible]
    worst_first = [one.edit.number for one in sorted(open_, key=lambda one: one.keeping) if one.keeping < 0]
    while worst_first and tuple(sorted(worst_first)) in impossible:
        worst_first.pop()
    return tuple(sorted(worst_first))


def _last_runs(history: History, champion: Attempt, passengers: tuple[int, ...], dawn: int) -> int:
    """Return how many more runs the script without passengers needs before it may replace the champion."""
    if not passengers:
        return 0
    last = _taken_out(history, champion, passengers)
    if last is None:
        return LAST
    return max(0, LAST - len(_fresh(last, dawn))) if fault(last) is None else 0


def _most_telling(
    history: History, champion: Attempt, doubts: tuple[Posterior, ...], impossible: Collection[tuple[int, ...]]
) -> DawnRun | None:
    open_ = [one for one in doubts if one.testable and one.edit.runs < MOST and (one.edit.number,) not in impossible]
    best = max(open_, key=Posterior.telling, default=None)
    if best is None or best.telling() < TELLING:
        return None
    return _run_without(history, champion, (best.edit.number,))


def _run_without(history: History, champion: Attempt, edits: tuple[int, ...]) -> DawnRun:
    known = _taken_out(history, champion, edits)
    return Without(edits) if known is None else Again(known.number)


def _taken_out(history: History, champion: Attempt, edits: tuple[int, ...]) -> Attempt | None:
    """Return the attempt that is the champion without these edits; without its last edit, it is its parent."""
    if edits == (champion.number,) and champion.parent is not None:
        return history[champion.parent]
    found = (one for one in history if one.parent == champion.number and one.proposal.without == edits)
    return next(found, None) if edits else None


def _fresh(attempt: Attempt, dawn: int, holdout: bool = False) -> dict[int, float]:
    """Return seed → bits per byte, of the attempt's runs at this dawn."""

    def value(run: Run) -> float | None:
        score = run.holdout if holdout else run.score
        return score.val_bpb if score else None

    return {run.seed: found for run in attempt.dawn_runs(dawn) if (found := value(run)) is not None}


def _quantiles(values: Array, probability: Array) -> Interval:
    below = np.cumsum(probability)
    low, high = (float(values[np.searchsorted(below, share)]) for share in (0.025, 0.975))
    return Interval(float(values @ probability), low, high)


def _gain_bpb(known: Knowledge, number: int) -> float:
    return (known.belief.mean(known.place[number]) - known.belief.mean(0)) * known.sigma_bpb

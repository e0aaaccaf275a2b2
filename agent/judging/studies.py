"""Judge a study, which is a night with fixed arms: ask for every seed of every arm, then compare the arms. Pure.

A gain is a difference to the baseline, positive where the arm is better. Paired by seed, t tests with Holm's correction
tell better and worse; where seeds do not pair, Dunnett's test does. Two one-sided tests, corrected in the same way,
tell that an arm is equal within the margin. Nothing is concluded before the last planned run.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from agent.experiment import NOT_COUNTED, Attempt, Decision, Ending, History, Kind, Review, Run, Study
from agent.findings import Interval
from agent.judging.failures import failure
from agent.judging.judges import Judge, simpler
from agent.judging.noise import distinct_scores, pooled_deviation
from agent.judging.study_plan import MORE_IS_BETTER, UNITS, Arm, Hypothesis, Measure, Plan, read_plan, read_rule
from agent.text import counted

ERROR, POWER = 0.05, 0.8  # how often the words of a study may be wrong, and how often it should see what is there
DIGITS = 3  # significant digits of a gain in a sentence
NOT_YET = "not measured yet"
PROPOSER = "study"  # of all its arms
MEASURED = (Kind.BASELINE, Kind.MEASURED)  # arms of which no run has crashed or was refused
Values = np.ndarray[Any, np.dtype[np.float64]]  # of one arm, by seed
Rows = Mapping[str, Values]  # arm → its values

# ---- the judge -------------------------------------------------------------------------------------------------------


def in_drawn_order(arms: Sequence[Arm], study: Study, block: int) -> list[str]:
    """Return the names of arms in the order that is drawn for a block: all arms with one seed."""
    names = [arm.name for arm in arms]
    return random.Random(f"{study.sha256} {block}").sample(names, len(names))


def arms_in(history: History) -> History:
    """Return the arms among the attempts of a study: somebody's own edit may be there as well."""
    return [attempt for attempt in history if attempt.number == 0 or attempt.proposer == PROPOSER]


@dataclass(frozen=True, slots=True)
class EverySeed(Judge):
    """Ask for all seeds of all arms, in blocks of all arms with one seed; keep nothing, and stop nothing early."""

    words: ClassVar = "every seed of every arm; nothing is kept"
    study: Study
    calibration: int = 1

    def compared(self, attempt: Attempt, parent: Attempt, best: Attempt, history: History) -> Decision:
        return Decision(Kind.MEASURED, "an arm of the study")

    def review(self, history: History) -> Review:
        """Ask for the runs that are still to be made, the earliest block first."""
        plan, arms = read_plan(self.study.plan), arms_in(history)
        if len(arms) < len(plan.arms) or any(attempt.decision is None for attempt in arms):
            return Review()
        if _failure(arms[0]) is not None:  # nothing is left to compare with
            return Review()
        order = [in_drawn_order(plan.arms, self.study, block) for block in range(plan.seeds)]
        lacking = [attempt for attempt in arms if attempt.seeds < plan.seeds and _failure(attempt) is None]
        lacking.sort(key=lambda attempt: (attempt.seeds, order[attempt.seeds].index(attempt.title)))
        return Review(tuple(attempt.number for attempt in lacking))


# ---- what a study has found ------------------------------------------------------------------------------------------


class Word(StrEnum):
    """Say how an arm compares with the baseline."""

    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal within the margin"
    UNDECIDED = "undecided"


class Verdict(StrEnum):
    """Say what became of a hypothesis."""

    FALSIFIED = "falsified"
    NOT_FALSIFIED = "not falsified"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One run of an arm."""

    arm: str  # its name
    seed: int
    value: float | None  # of the primary measure
    began: str | None  # ISO 8601, UTC


@dataclass(frozen=True, slots=True)
class ArmResult:
    """An arm over the whole blocks, and how it compares with the baseline; None: not known, or the baseline itself."""

    name: str  # as the plan calls it
    attempt: int | None = None  # its number in the night
    fault: str | None = None  # why it is not compared: it crashed, it was refused, or is not measured yet
    mean: float | None = None  # of the primary measure
    deviation: float | None = None  # standard deviation over seeds
    low: float | None = None  # lower end of the mean's own 95 % interval
    high: float | None = None  # its upper end
    others: Mapping[str, float] = field(default_factory=dict)  # means of the other measures
    gain: float | None = None  # over the baseline; positive is better
    gain_low: float | None = None  # lower end of its 95 % interval
    gain_high: float | None = None  # its upper end
    sigmas: float | None = None  # the gain in standard deviations of one run
    p: float | None = None  # of no difference, corrected for the number of arms
    p_equal: float | None = None  # of a difference beyond the margin, corrected likewise
    cohens_d: float | None = None  # the gain by the deviation of both arms; rough, of few seeds
    word: Word | None = None  # how it compares
    simpler: str | None = None  # what is simpler in it than in the baseline


@dataclass(frozen=True, slots=True)
class RuleResult:
    """A rule, evaluated: the left side less the right side."""

    rule: str  # as the plan has it
    value: float  # of the difference
    low: float  # lower end of its 95 % interval
    high: float  # its upper end
    p: float  # of no difference between the sides


@dataclass(frozen=True, slots=True)
class HypothesisResult:
    """A hypothesis with its rules, and what became of it."""

    name: str  # as the plan calls it
    says: str  # what it claims
    verdict: Verdict  # what became of it
    rules: tuple[RuleResult, ...]  # empty where an arm that they name is not compared


@dataclass(frozen=True, slots=True)
class Results:
    """What a study has found so far."""

    question: str  # as the plan asks it
    answer: str  # in a sentence
    measure: Measure  # the primary one
    margin: float  # the smallest difference of interest
    runs: int  # that are made, and count
    planned: int  # runs
    is_complete: bool  # whether all runs are made that the plan asks for; before that, all is undecided
    baseline: str  # name of the arm that the others are compared with
    sigma: float | None  # standard deviation of one run
    arms: tuple[ArmResult, ...]  # in the order of the plan
    anova_p: float | None  # of no difference between any arms
    hypotheses: tuple[HypothesisResult, ...]  # in the order of the plan
    deviations: tuple[str, ...]  # from the plan
    order: tuple[ArmRun, ...]  # every run that counts, in its order


def value_of(run: Run, measure: Measure) -> float | None:
    """Return what a run measured; None where it has no score that counts."""
    summary = run.summary
    match measure:
        case _ if run.val_bpb is None:
            return None
        case "val_bpb" | "steps_s" | "params":
            return getattr(run, measure)  # type: ignore[no-any-return]
        case "overhead_s":
            return run.given_s - summary.training_seconds if summary and summary.training_seconds else None
        case "peak_mb":
            peak = summary.peak_vram_mb if summary else None
            return peak or (run.peak_bytes / 2**20 if run.peak_bytes else None)


def results_of(study: Study, history: History) -> Results:
    """Compare the arms of a study by the runs so far."""
    plan, entered = read_plan(study.plan), arms_in(history)
    attempts = {attempt.title: attempt for attempt in entered}
    first, faults = plan.arms[0].name, {arm.name: _fault(attempts.get(arm.name)) for arm in plan.arms}
    live = [name for name, fault in faults.items() if fault is None]
    runs = {name: {run.seed: run for run in attempts[name].done_runs} for name in live}
    seeds = range(plan.first_seed, plan.first_seed + plan.seeds)
    blocks = [seed for seed in seeds if all(seed in runs[name] for name in live)]  # without any arm, all are whole
    is_over = first in attempts and _failure(attempts[first]) is not None
    is_complete = NOT_YET not in faults.values() and (is_over or len(blocks) == plan.seeds)

    def rows_of(measure: Measure) -> Rows:
        """Return the values in whole blocks, of those arms of which every run has one."""
        rows = {name: [value_of(runs[name][seed], measure) for seed in blocks] for name in live}
        return {name: np.array(row, float) for name, row in rows.items() if None not in row and len(row) > 1}

    rows, more = rows_of(plan.primary), {measure: rows_of(measure) for measure in plan.others}
    sigma = pooled_deviation([row.tolist() for row in rows.values()])[0] or None
    compared = _compared(plan, rows, sigma) if first in rows else {}
    arms = []
    for name, fault in faults.items():
        attempt, own = attempts.get(name), _spread(rows[name]) if name in rows else {}
        others: dict[str, float] = {measure: float(row[name].mean()) for measure, row in more.items() if name in row}
        facts = compared.get(name, {})
        word = None if name == first else facts.get("word", Word.UNDECIDED) if is_complete else Word.UNDECIDED
        less = simpler(attempt, entered[0]) if attempt is not None and attempt.number else None
        number = None if attempt is None else attempt.number
        arms.append(ArmResult(name, number, fault, others=others, simpler=less, **own, **facts | {"word": word}))
    made = sorted(
        (ArmRun(name, run.seed, value_of(run, plan.primary), run.began) for name in attempts
         for run in attempts[name].done_runs), key=lambda run: run.began or "",
    )  # fmt: skip
    return Results(
        question=plan.question,
        answer=_answer(plan, arms, len(made), is_complete),
        measure=plan.primary,
        margin=plan.margin,
        runs=len(made),
        planned=plan.seeds * len(plan.arms),
        is_complete=is_complete,
        baseline=first,
        sigma=sigma,
        arms=tuple(arms),
        anova_p=_anova_p(rows),
        hypotheses=tuple(_tested(each, rows_of(each.measure), first, is_complete) for each in plan.hypotheses),
        deviations=tuple(_deviations(study, plan, entered, faults, is_complete)),
        order=tuple(made),
    )


def _fault(attempt: Attempt | None) -> str | None:
    """Return why an arm is not compared; None if it is."""
    if attempt is None or attempt.decision is None:
        return NOT_YET
    if (why := _failure(attempt)) is not None:
        return why
    if len(distinct_scores(attempt)) == 1 < len(attempt.scores_bpb):
        return "it ignores its seed: all seeds gave the very same score"
    return None


def _failure(attempt: Attempt) -> str | None:
    """Return why an arm gets no further run: one has crashed, or was refused; None if none was."""
    return failure(attempt) if attempt.kind in MEASURED else attempt.words


def _spread(row: Values) -> dict[str, Any]:
    """Return the mean of a row, its deviation over seeds, and the 95 % interval of the mean."""
    deviation = float(row.std(ddof=1))
    own = Interval.by_student(float(row.mean()), deviation / math.sqrt(len(row)), len(row) - 1)
    return {"mean": own.mean_bpb, "deviation": deviation, "low": own.low_bpb, "high": own.high_bpb}


def _compared(plan: Plan, rows: Rows, sigma: float | None) -> dict[str, dict[str, Any]]:
    """Return how each arm compares with the first one."""
    from scipy import stats  # takes a second to import

    sign = 1.0 if plan.primary in MORE_IS_BETTER else -1.0
    base, *others = (sign * row for row in rows.values())
    names = list(rows)[1:]
    if not names:
        return {}

    def p_of(row: Values, at: float, side: str) -> float:
        """Return the p value of a gain of this size, against gains on one side of it, or on both."""
        if plan.paired:
            return p_value(row - base - at, side)
        return float(stats.ttest_ind(row - at, base, equal_var=False, alternative=side).pvalue)

    equal = holm([max(p_of(row, -plan.margin, "greater"), p_of(row, plan.margin, "less")) for row in others])
    if plan.paired:
        spreads = [_spread(row - base) for row in others]
        ends = [(spread["low"], spread["high"]) for spread in spreads]
        ps = holm([p_of(row, 0.0, "two-sided") for row in others])
    else:
        test = stats.dunnett(*others, control=base, rng=0)
        both = test.confidence_interval(1 - ERROR)
        ends, ps = list(zip(both.low.tolist(), both.high.tolist(), strict=True)), test.pvalue.tolist()
    compared = {}
    for name, row, (low, high), p, p_equal in zip(names, others, ends, ps, equal, strict=True):
        gain, own = float(row.mean() - base.mean()), pooled_deviation([row.tolist(), base.tolist()])[0]
        differs = Word.UNDECIDED if p > ERROR else Word.BETTER if gain > 0 else Word.WORSE
        compared[name] = {
            "gain": gain, "gain_low": low, "gain_high": high, "p": p, "p_equal": p_equal,
            "sigmas": gain / sigma if sigma else None, "cohens_d": gain / own if own else None,
            "word": Word.EQUAL if p_equal <= ERROR else differs,
        }  # fmt: skip
    return compared


def p_value(row: Values, side: str = "two-sided") -> float:
    """Return the p value of a mean of zero by Student's t test, against means on one side of zero, or on both."""
    from scipy import stats

    mean = float(row.mean())
    if np.ptp(row) == 0:  # the seed moves nothing
        return float(not {"two-sided": mean != 0, "greater": mean > 0, "less": mean < 0}[side])
    return float(stats.ttest_1samp(row, 0.0, alternative=side).pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values corrected for their number (Holm 1979), in their order."""
    corrected, least = [1.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=lambda at: ps[at])):
        least = max(least, min(1.0, (len(ps) - rank) * ps[at]))
        corrected[at] = least
    return corrected


def _anova_p(rows: Rows) -> float | None:
    from scipy import stats

    if len(rows) < 2 or not any(np.ptp(row) for row in rows.values()):
        return None
    return float(stats.f_oneway(*rows.values()).pvalue)


def _tested(hypothesis: Hypothesis, rows: Rows, first: str, is_complete: bool) -> HypothesisResult:
    """Evaluate the rules of a hypothesis: one that certainly holds falsifies it, and it stands where none may hold."""
    sign, results, verdicts = 1.0 if hypothesis.measure in MORE_IS_BETTER else -1.0, [], []
    rules = {text: read_rule(text) for text in hypothesis.falsified_if}
    for text, rule in rules.items():
        arms = rule.weights.keys() - {""}
        if not {first, *arms} <= rows.keys():
            return HypothesisResult(hypothesis.name, hypothesis.says, Verdict.UNDECIDED, ())
        gains = [rule.weights[name] * sign * (rows[name] - rows[first]) for name in sorted(arms)]
        row = np.sum([np.zeros_like(rows[first]), *gains], axis=0) + rule.weights.get("", 0.0)
        spread, p = _spread(row), p_value(row)
        results.append(RuleResult(text, spread["mean"], spread["low"], spread["high"], p))
        holds = Verdict.FALSIFIED if (spread["mean"] < 0) == rule.below else Verdict.NOT_FALSIFIED
        verdicts.append(holds if is_complete and p <= ERROR / len(rules) else Verdict.UNDECIDED)
    stands = Verdict.NOT_FALSIFIED if set(verdicts) == {Verdict.NOT_FALSIFIED} else Verdict.UNDECIDED
    verdict = Verdict.FALSIFIED if Verdict.FALSIFIED in verdicts else stands
    return HypothesisResult(hypothesis.name, hypothesis.says, verdict, tuple(results))


# ---- in words --------------------------------------------------------------------------------------------------------


def _answer(plan: Plan, arms: Sequence[ArmResult], made: int, is_complete: bool) -> str:
    """Answer the question in one sentence: the arms by their words, those with the largest gain first."""
    if not is_complete:
        return f"{made} of {plan.seeds * len(plan.arms)} runs are made, and nothing is decided before the last one."
    parts = []
    for word in Word:
        of_it = sorted((arm for arm in arms if arm.word is word), key=lambda arm: -(arm.gain or 0.0))
        gains = [f"{arm.gain:+.{DIGITS}g}".replace("-", "−") if arm.gain is not None else "" for arm in of_it]
        names = [f"{arm.name} ({gain})" if gain else arm.name for arm, gain in zip(of_it, gains, strict=True)]
        if names:
            parts.append(f"{word}: {', '.join(names)}")
    return f"Against {arms[0].name}, in {UNITS[plan.primary]}: {'; '.join(parts)}."


def _deviations(
    study: Study, plan: Plan, history: History, faults: Mapping[str, str | None], is_complete: bool
) -> Iterator[str]:
    """Yield each way in which the study is not as it was planned."""
    yield from (f"post hoc, after runs of an earlier plan were seen: {change}" for change in study.post_hoc)
    for name, fault in faults.items():
        if fault is not None and (is_complete or fault != NOT_YET):
            yield f"arm {name} is not compared: {fault}"
    for attempt in history:
        again = [str(run.ending) for run in attempt.runs if run.ending in NOT_COUNTED - {Ending.RUNNING}]
        if again:
            yield f"arm {attempt.title}: {counted(len(again), 'run')} made again ({', '.join(sorted(set(again)))})"


# ---- before the first run --------------------------------------------------------------------------------------------


def smallest_difference(plan: Plan, seeds: int, tests: int = 1) -> float:
    """Return the smallest true difference that so many seeds show in 4 of 5 studies, in σ of one run.

    tests: the number of comparisons that a correction allows for. It takes a seed to do different things to two arms.
    """
    from scipy import optimize, stats

    freedom, error = (seeds - 1 if plan.paired else 2 * seeds - 2), math.sqrt(2 / seeds)
    critical = float(stats.t.isf(ERROR / tests / 2, freedom))

    def lacking(difference: float) -> float:
        return float(stats.nct.sf(critical, freedom, difference / error)) - POWER

    return float(optimize.brentq(lacking, 0.0, 3 * critical * error))

"""Say a gain, an interval, a time, a size and where a night stands, in the same words on every screen and page.

It imports nothing that takes long: `status` is asked often.
"""

import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from agent.clock import hours_since
from agent.experiment import Attempt, History, Kind, Night, Noise, Status, confirmed_branch, short
from agent.findings import Findings, Interval
from agent.invocation import typed
from agent.judging.speed import machine_speed
from agent.pools.device_slots import BUSY_SHARE, slowdown_lines
from agent.proposers.proposer import Left
from agent.records.record import Record
from agent.records.summary import NightSummary, confirmed_gain, lower_bpb, lower_than_best, speed_of
from agent.text import (
    ABSURD,
    SCORE_DECIMALS,
    better,
    counted,
    digits,
    duration,
    harmless,
    percent_sure,
    two_digits,
    versus,
)
from agent.view.answer import Worker, Workers
from agent.work import Progress, Work

BETWEEN = " · "  # parts of a line
NONE = "–"  # a table's sign for no value
PAGE_DECIMALS = 4  # decimals of a score in a page; a terminal shows all of them
BUSY = 0.2  # speed that confirmation runs lose only where the machine has other work, as a share of the night's


@dataclass(frozen=True, slots=True)
class Form:
    """How the scores and gains of a night are written."""

    decimals: int | None = SCORE_DECIMALS  # None: seven significant digits, of a number that the script itself prints
    is_page: bool = False

    @classmethod
    def of(cls, night: Night, *, is_page: bool = False) -> "Form":
        decimals = PAGE_DECIMALS if is_page else SCORE_DECIMALS
        return cls(None if night.options.metric else decimals, is_page)

    def number(self, value: float | None, sign: str = "") -> str:
        """Return a score or a gain; sign: "+" for a gain."""
        if value is None:
            return NONE if self.is_page else ""
        shown = digits(float(digits(value, self.decimals)) + 0.0, self.decimals, sign)  # no number is -0
        return shown.replace("-", "−") if self.is_page else shown

    def ends(self, interval: Interval, sign: str = "+") -> str:
        """Return the ends of a 95 % interval."""
        return f"[{self.number(interval.low_bpb, sign)}, {self.number(interval.high_bpb, sign)}]"

    def interval(self, interval: Interval | None, sign: str = "+") -> str:
        """Return a gain with its 95 % interval where the noise is known; sign: "" for a score."""
        if interval is None:
            return "not measured: too few runs"
        mean = self.number(interval.mean_bpb, sign)
        return f"{mean} {self.ends(interval, sign)}" if interval.has_width else mean

    def lower(self, attempt: Attempt, parent: Attempt | None) -> float | None:
        """Return by how much the score of an attempt is better than its parent's, both as they are shown."""
        return lower_bpb(attempt, parent, self.decimals)

    def better(self, lower_bpb: float) -> str:
        """Say how much better or worse a score is than another one."""
        return better(lower_bpb, self.decimals)


def speed(attempt: Attempt, parent: Attempt | None) -> str:
    """Return how fast an attempt trained beside its parent, as in ×0.93."""
    share = speed_of(attempt, parent)
    return NONE if share is None else f"×{share:.2f}"


def memory(gigabytes: float) -> str:
    """Return a size in GB, or in MB if it is below 0.1 GB."""
    return f"{gigabytes:.1f} GB" if gigabytes >= 0.1 else f"{1024 * gigabytes:.0f} MB"


def moment(at: str | None) -> str:
    """Return a time of the journal as people read it, in UTC; "" where none was noted."""
    return f"{at[:19].replace('T', ' ')} UTC" if at else ""


def progress_words(point: Progress, budget_s: float) -> list[str]:
    """Return what is known of a training run's progress, the most important first."""
    done = within_one(point.fraction)
    words = [f"{done:.0%}", f"{(1 - done) * budget_s:.0f} s left"]
    if point.tokens_s is not None and 0 <= point.tokens_s < ABSURD:
        words.append(f"{point.tokens_s:,.0f} tokens/s")
    if point.loss is not None and abs(point.loss) < ABSURD:
        words.append(f"loss {point.loss:.3f}")
    if point.step is not None and 0 <= point.step < ABSURD:
        words.append(f"step {point.step:.0f}")
    return words


def pace_words(point: Progress | None, budget_s: float, since: str | None, what: str | None = None) -> list[str]:
    """Return how far a training run is; for work without a known end, how long it has run; since: by the journal.

    what: comes before the training tells how far it is.
    """
    if point is not None:
        return progress_words(point, budget_s)
    lasts = [f"for {duration(max(0.0, hours_since(since)))}"] if since else []
    return [*([] if what is None else [what]), *lasts]


def left_words(left: Left) -> list[str]:
    """Say what is left of the limits of a night, if it has any."""
    words = [] if left.experiments is None else [counted(left.experiments, "experiment")]
    return words + ([] if left.seconds is None else [duration(left.seconds / 3600)])


def doing_words(work: Work) -> str:
    """Return what a worker does, such as training, seed 7."""
    seed = "" if work.seed is None else f", seed {work.seed}"
    return f"{work.doing}{seed}{' of the confirmation' if work.confirmation else ''}"


def within_one(fraction: float) -> float:
    return min(1.0, max(0.0, fraction))


# ---- the verdict on an edit ------------------------------------------------------------------------------------------

SURE = "sure: how probable it is that the edit itself brings a gain; the rest is luck"
# For these kinds, the difference of two scores and the probability of a gain say why.
ESTIMATED = {Kind.KEPT, Kind.PROVISIONAL, Kind.CONFIRMED, Kind.WORSE, Kind.LUCK, Kind.TIE, Kind.REVOKED}


def outcome(kind: Kind | None, lower: float | None = None) -> str:
    """Return what became of an attempt, in a word; lower: by how much its score is better than its parent's."""
    if kind in (Kind.WORSE, Kind.LUCK) and lower is not None:
        return Kind.LUCK if lower > 0 else Kind.WORSE
    return kind or "not decided"


def verdict_on(record: Record, attempt: Attempt, form: Form | None = None) -> str:
    """Say what became of an attempt and why: by its numbers, or in the judge's words where these do not tell it.

    Once it was measured again, that figure takes the place of how sure it is.
    """
    form = form or Form.of(record.night)
    lower, again = form.lower(attempt, record.parent(attempt)), confirmed_gain(record, attempt)
    word, why = outcome(attempt.kind, lower), attempt.words or ""
    parent = record.parent(attempt)
    if attempt.kind in ESTIMATED and lower is not None and parent is not None:
        same_seeds, machine = attempt.lower_with_same_seeds(parent), machine_speed(attempt, parent)
        why = versus("its parent", lower, None if again else attempt.sure, form.decimals, same_seeds, machine)
    said = why if why.startswith(word) else ": ".join(filter(None, (word, why)))
    return said if again is None else f"{said}; measured again, it gains {form.interval(again)}"


def lowest_words(record: Record, form: Form | None = None) -> str | None:
    """Say why the best script has not the best score of the night; None where it has."""
    form = form or Form.of(record.night)
    lowest = lower_than_best(record)
    if lowest is None or record.best is None:
        return None
    fate = "was kept before it" if lowest.status is Status.KEEP else "is not kept"
    why, extreme = verdict_on(record, lowest, form), "lowest" if record.night.sign > 0 else "highest"
    return (
        f"The best, #{record.best.number}, has not the {extreme} score: #{lowest.number} has "
        f"{form.number(lowest.shown_bpb)}, and {fate} ({why})."
    )


# ---- how sure the gain of a night is ---------------------------------------------------------------------------------


def belief(now: NightSummary, form: Form | None = None) -> str:
    """Say how much a night has gained, and how sure that is."""
    confirmation, gain, form = now.confirmation, now.gain, form or Form.of(now.night)
    unit = "" if now.night.options.metric else " bits per byte"
    if confirmation is not None and confirmation.honest is not None:
        again = f"Measured again on fresh seeds, #{confirmation.best} gains {form.interval(confirmation.honest)}{unit}"
        if confirmation.script is None:
            doubt = "it is worse" if confirmation.honest.high_bpb < 0 else "that may be luck"
            return f"{again}: {doubt}, so it is not confirmed."
        if confirmation.script != confirmation.best:
            return f"{again}. Edits that brought nothing were removed: #{confirmation.script} is confirmed."
        return f"{again}: confirmed."
    if gain is None:
        return "No idea has brought a gain yet." if now.ideas and now.baseline is not None else ""
    sure = "The best of many attempts looks better than it is: only fresh seeds tell."
    if now.noise is not None and now.noise.sigma_bpb == 0:
        sure = "Seeds change no score here."
    elif not gain.has_width:
        sure = "The noise is not known, so it may be luck."
    elif gain.low_bpb <= 0:
        sure = "The interval includes zero, so all of it may be luck."
    return f"By the night's own scores the best script gains {form.interval(gain)}{unit}. {sure}"


def reported_words(night: Night) -> str:
    """Say what the scores of a night are where the script itself reports them; "" where nightshift measures them."""
    if not night.options.metric:
        return ""
    return (
        f"{night.metric} is self-reported: a number that the script gives itself; {night.better} is better. Nothing "
        f"checks it: an edit may print a better number without being better, so read what is kept"
    )


def confirmation_lines(findings: Findings, history: History, night: Night, *, is_here: bool = True) -> list[str]:
    """Return the findings of a confirmation as lines, and what comes next; is_here: whether the night can go on."""
    best, branch, form = findings.best, short(confirmed_branch(night.branch)), Form.of(night)
    lines = [
        f"confirmation: #{best} {history[best].title}, against the baseline",
        f"  recorded gain   {form.number(findings.recorded_bpb, '+') or 'none'} (by the night's own scores)",
        f"  honest gain     {form.interval(findings.honest)} (fresh seeds)",
    ]
    if not night.options.metric:
        holdout = form.interval(findings.holdout)
        lines.append(f"  on the holdout  {holdout} (text that no attempt was judged by)")
    shares = confirmation_speeds(history[0], history[best])
    if slow := sum(share < 1 - BUSY for share in shares):
        lines.append(f"  the machine was slow: {slow} of {len(shares)} runs lost over {BUSY:.0%} of their usual speed")
    parts = findings.edits if len(findings.edits) > 1 else ()  # one edit alone brings the honest gain
    for edit in parts:
        brings = f"brings {form.interval(edit.effect)}"
        if edit.number in findings.without_effect:
            brings += ", an edit without effect"
        elif not edit.runs:
            brings = f"was not tested by removing it, {percent_sure(1 - edit.worthless)} sure of a gain"
        lines.append(f"  #{edit.number} {brings}: {history[edit.number].title}")
    if parts and findings.dropping is not None:
        lines.append(f"  without the doubtful edits it gains {form.interval(findings.dropping)} more")
    lines += [] if findings.stays is None else [f"  {findings.stays}"]
    if findings.script is not None:
        lines.append(
            f"  the confirmed script, #{findings.script}, is on branch {branch}{'' if is_here else ' where it ran'}"
        )
    elif findings.honest is None:
        go_on = f"; go on with: {typed('confirm', night.tag)}" if is_here else ""
        lines.append(f"  not confirmed yet: too few runs{go_on}")
    else:
        why = "it is worse than the baseline" if findings.honest.high_bpb < 0 else "its gain may be luck"
        more = f"more runs may tell: {typed('confirm', night.tag)}; " if is_here else ""
        lines += [
            f"  NOT confirmed: {why}{f'; {branch} is not touched' if is_here else ''}",
            f"  {more}back to the baseline: {typed('take', f'{night.tag}:0')}",
        ]
    return [harmless(line) for line in lines]


def confirmation_speeds(first: Attempt, best: Attempt) -> list[float]:
    """Return the speed of each run of both in the confirmation, as a share of the script's median in the night.

    Runs without a speed are left out, and those of a script that has none in the night.
    """
    confirmation, shares = max((run.confirmation for run in best.runs), default=0), list[float]()
    for attempt in (first, best):
        usual = [run.steps_s for run in attempt.done_runs if run.steps_s is not None]
        speeds = [run.steps_s for run in attempt.confirmation_runs(confirmation) if run.steps_s is not None]
        shares += [steps_s / statistics.median(usual) for steps_s in speeds if usual]
    return shares


# ---- where a night stands --------------------------------------------------------------------------------------------


HEADS = re.compile(  # matches the start of lines that a terminal shows in bold
    r"night [^:]+|branch|script|[\d,]+ attempts?|best \S+|noise|spent|left|workers|at work|unfinished|next"
)


def status_lines(
    record: Record, now: NightSummary, workers: Workers, *, pid: int | None, stopping: bool, left: str | None
) -> list[str]:
    """Return the lines on a night's state; left: how much is left of its limits, in words."""
    night = record.night
    state = f"running (pid {pid})" if pid else "not running"
    if pid and stopping:
        state += ", ends after what runs now"
    lines = [
        f"night {night.tag}: {state}; it began {moment(night.started)}"
        + ("" if pid or now.ended is None else f", its last run ended {moment(now.ended)}"),
        f"branch {short(night.branch)}, {night.most}{night.budget_s:g} s a run, {night.device}, "
        f"protocol {night.protocol}",
        f"script {night.script}" + (f", data {Path(night.data).name}" if night.data else ""),  # a record names none
        *found_lines(record, now),
        _spent_line(now),
        left,
        *_worker_lines(workers, is_running=pid is not None),
    ]
    if now.unfinished and not workers.at_work:  # the first is resumed first
        number, title = now.unfinished[0]
        lines.append(f"{'at work' if pid else 'unfinished, continues with the night'}: #{number} {title}")
    return [harmless(line) for line in lines if line]


def found_lines(record: Record, now: NightSummary) -> list[str]:
    """Return lines on what a night has tried, what it has brought, and whether to believe that."""
    counts = [f"{now.kept} kept", f"{now.discarded} discarded", f"{now.crashed} crashed"]
    counts += [f"{len(now.unfinished)} unfinished"] if now.unfinished else []
    lines = [
        reported_words(now.night),
        f"{counted(now.attempts, 'attempt')}, {now.ideas} of them ideas: {', '.join(counts)}",
        *_gain_lines(record, now),
        *([] if now.noise is None else noise_lines(now.noise)),
        others_words(now),
    ]
    return [harmless(line) for line in lines if line]


def _gain_lines(record: Record, now: NightSummary) -> list[str | None]:
    """Return lines on what a night has brought; of a study, which keeps nothing, its answer."""
    study = now.night.options.study
    if study is None:
        return [_best_line(now), lowest_words(record), belief(now)]
    from agent.judging.studies import results_of

    found = results_of(study, record.attempts)
    return [found.question, found.answer]


def _worker_lines(workers: Workers, *, is_running: bool) -> list[str]:
    """Return a line for each worker that has a run now, below one on all of them where there are several."""
    lines = [f"{worker.name}: {_worker_words(worker)}" for worker in workers.at_work]
    if workers.count == 1:
        return [f"at work: {_worker_words(worker)}" for worker in workers.at_work]
    busy = f"{len(workers.at_work)} of {workers.count} busy now" if is_running else str(workers.count)
    return [f"workers: {busy}", *(f"  {line}" for line in lines), *slowdown_lines(workers.slowdown)]


def _worker_words(worker: Worker) -> str:
    assert worker.work is not None
    return f"{doing_words(worker.work)}: #{worker.work.attempt} {worker.title}"


def _best_line(now: NightSummary) -> str | None:
    if now.best is None or now.baseline is None:
        return "the baseline has no score" if now.attempts and not now.unfinished else None
    form = Form.of(now.night)
    beside = "the baseline" if now.gain is None else f"the baseline has {form.number(now.baseline.val_bpb)}"
    return f"best {now.night.metric} {form.number(now.best.val_bpb)} (#{now.best.number}), {beside}"


def _spent_line(now: NightSummary) -> str | None:
    parts = [f"{duration(hours)} {activity}" for activity, hours in now.hours.items() if hours]
    cost = "" if now.usd is None else f"; ${now.usd:.2f}"
    cost += f" of at most ${now.most_usd:.2f}" if cost and now.most_usd is not None else ""
    return f"spent: {', '.join(parts)}{cost}" if parts else None


def others_words(now: NightSummary) -> str | None:
    """Say what other programs took of a night's processors, what follows and what helps; None where that is little."""
    share = now.others_share
    if share is None or share < BUSY_SHARE:
        return None
    fair = "each run was given its seconds all the same, and"
    follows = "a number that depends on time suffers, and a run" if now.night.options.metric else fair
    return (
        f"Other programs took {share:.0%} of this night's processors: {follows} took {1 / (1 - share):.1f} times as "
        f"long. End them for a faster night."
    )


def noise_lines(noise: Noise) -> list[str]:
    """Return lines on the measured noise, with a warning if it cannot be trusted."""
    if noise.sigma_bpb == 0:
        return [f"noise: none: {noise.runs} runs of the same script with other seeds gave the same score"]
    line = (
        f"noise: σ about {two_digits(noise.sigma_bpb)} from {noise.runs} repeated runs; a difference below "
        f"about {two_digits(noise.smallest_bpb)} between two single runs may be luck"
    )
    if noise.paired_bpb is not None:
        line += f", or below about {two_digits(noise.paired_bpb)} if they share a seed and differ in dials only"
    return [line] if noise.doubt is None else [line, doubt_words(noise.doubt)]


def doubt_words(doubt: str) -> str:
    """Say what follows where attempt 0 hardly trains."""
    return (
        f"The baseline hardly trains ({doubt}), so its noise says little about that of other scripts, and σ is "
        f"doubled: longer runs or a smaller model tell more."
    )

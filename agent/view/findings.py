"""Put dawn's findings into words: the gain on fresh seeds and on the holdout, and the owner's next step."""

import math

from agent.experiment import Findings, History, Interval, Night, attempt_ref, confirmed_branch, short
from agent.invocation import typed
from agent.judging.champion import names
from agent.text import harmless, percent_sure
from agent.view.words import interval_words as interval

MOST_RUNS = 100  # if more runs were needed, advise longer runs instead


def findings_lines(findings: Findings, history: History, night: Night, *, is_branch_there: bool) -> list[str]:
    """Return dawn's findings as lines; `is_branch_there` says whether this or an earlier dawn made the branch."""
    lines = [
        f"dawn: #{findings.champion} {history[findings.champion].proposal.title}, against the baseline",
        f"  recorded gain   {_recorded(findings)}",
        f"  honest gain     {interval(findings.honest)} (fresh seeds; the interval covers the choice of seeds)",
        f"  on the holdout  {interval(findings.holdout)} (the same runs on text that no attempt was judged by)",
    ]
    left_alone = [edit for edit in findings.edits if not edit.runs and edit.number not in findings.passengers]
    is_one_edit = len(findings.edits) == 1 and not findings.passengers  # its effect is the gain above
    for edit in findings.edits:
        if edit not in left_alone and not is_one_edit:
            dropped = "a passenger" if findings.script is None else "a passenger, dropped"
            word = dropped if edit.number in findings.passengers else "it stays"
            title = history[edit.number].title
            lines.append(f"  #{edit.number} brings {interval(edit.effect)}, {word}: {title}")
    if left_alone:
        sure = (f"#{edit.number} ({percent_sure(1 - edit.worthless)} sure of a gain)" for edit in left_alone)
        lines.append(f"  not taken out: {', '.join(sure)}")
    if findings.stays is not None:
        lines.append(f"  {findings.stays}")
    if findings.dropping is not None:
        what = f"dropping {names(findings.passengers)}" if findings.passengers else "dropping all that is in doubt"
        lines.append(f"  {what} brings {interval(findings.dropping)}")
    return [harmless(line) for line in (*lines, *_end(findings, night, is_branch_there))]


def _recorded(findings: Findings) -> str:
    if findings.recorded_bpb is None or findings.believed_bpb is None:
        return "none: the night has not measured it"
    return f"{findings.recorded_bpb:+.6f} (by the night's own scores; shrunk: {findings.believed_bpb:+.6f})"


def _end(findings: Findings, night: Night, is_branch_there: bool) -> list[str]:
    branch = short(confirmed_branch(night.branch))
    if findings.script is not None:
        edits = [edit.number for edit in findings.edits]
        nothing = findings.passengers and sorted(findings.passengers) == sorted(edits)
        what = "no edit of the night stays: the baseline's script" if nothing else "the confirmed script"
        return [f"  {what} is on {branch}"]
    earlier = [f"  {branch} stays as an earlier dawn left it"] if is_branch_there else []
    if findings.honest is None:
        return [f"  not confirmed yet: too few runs; go on with: {typed('confirm', night.tag)}", *earlier]
    none = "is none" if findings.honest.high_bpb <= 0 else "may be none at all"
    return [
        f"  NOT confirmed: on fresh seeds #{findings.champion} gains {interval(findings.honest)} over the baseline, "
        f"which {none}; no branch is made",
        *earlier,
        *(f"  {line}" for line in _advice(findings, findings.honest, night)),
    ]


def _advice(findings: Findings, honest: Interval, night: Night) -> list[str]:
    """Return advice for an owner whose champion's gain is not confirmed."""
    back = f"git restore -s {attempt_ref(night.tag, 0)} {night.script}"
    if honest.high_bpb < 0:
        return [f"it is worse than the baseline; go back to that with: {back}"]
    runs = runs_to_tell(honest, findings.fresh_runs)
    if runs is not None and runs <= MOST_RUNS:
        confirm = typed("confirm", night.tag, "--runs", str(runs))
        more = f"if the gain is real, about {runs} more runs will show it: {confirm}"
    else:
        more = (
            f"runs like these will hardly tell it from zero: look for larger gains with "
            f"{typed('run', '--tag', night.tag)}, or begin a night of longer runs (--budget-s)"
        )
    return [more, f"until then the baseline may be as good, and it is simpler: {back}"]


def runs_to_tell(honest: Interval, runs: int) -> int | None:
    """Return how many more runs would exclude zero from an interval with this mean; None if the mean is not above 0."""
    if honest.mean_bpb <= 0:
        return None
    wide = (honest.mean_bpb - honest.low_bpb) / honest.mean_bpb
    return max(8, 2 * math.ceil(runs * (wide**2 - 1) / 2))

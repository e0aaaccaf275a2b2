"""Answer a question by a plan, with fixed arms and several seeds each: nightshift study."""

import difflib
import hashlib
import itertools
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path

from agent.cli.find import is_known, place_meant, record_of
from agent.cli.options import SCRIPT, Positive, PositiveInt, UserPath
from agent.cli.run import greet
from agent.errors import NightError
from agent.experiment import Idea, Night, Proposal, Study
from agent.git import refs_of_night, valid_tag
from agent.invocation import typed
from agent.judging.studies import PROPOSER, arms_in, in_drawn_order, smallest_difference
from agent.judging.study_plan import Plan, read_plan
from agent.lab.hardware import user_path
from agent.night.limits import Limits, Pace
from agent.night.loop import run_night
from agent.night.opening import Request, open_context
from agent.night.state import NightContext
from agent.proposers.arms import scripts_of
from agent.records.journal import Journal
from agent.records.place import Place, check_unpacked, past_nights, read_script
from agent.records.record import Record, of_journal
from agent.records.results import tags_in
from agent.runs.fixed import laid_out, probe
from agent.script.contract import fixed_files, read_text
from agent.text import counted, duration
from agent.view.answer import Answer
from agent.view.screen import print_folded, print_lines, terminal_width
from agent.view.study import StudyAnswer, StudyForecast, of_study, study_lines

MOST_SEEDS = 1000


def study(
    plan: str,
    /,
    *,
    dry: bool = False,
    yes: bool = False,
    hours: Positive | None = None,
    workers: PositiveInt | None = None,
    script: UserPath = SCRIPT,
) -> Answer:
    """Answer a question by a plan: check it, say what it can show, then make its runs, or go on with them.

    Where there is a terminal, it asks before it begins. The plan is committed before the first run. A changed plan is
    another study (docs/studies.md).

    Args:
        plan: the plan, a TOML file; or the tag of a study, to show what it has found
        dry: say what the plan can show and what it costs, and make no run
        yes: begin without asking, as it does where there is no terminal
        hours: begin no run that would end later than this; the same command goes on
        workers: make N runs at the same time, each on its own GPU or cores (default: 1)
        script: the training script that the arms edit (default: train_mlx.py)
    """
    file = user_path(plan)
    if not file.is_file() and is_known(place := place_meant(plan), plan):
        return _shown(record_of(place, plan))
    text, place = read_text(file), Place.of(script)
    planned, beside = read_plan(text, str(file)), place.script_path.parent
    with laid_out(beside, fixed_files(beside, read_script(place))) as folder:
        facts = probe(folder, dataset=planned.dataset, used_in=beside)
    scripts = scripts_of(planned, text, file, place, facts["device_kind"])
    digest = hashlib.sha256(json.dumps([text, *scripts.items()]).encode()).hexdigest()
    tag, before, earlier = _tag(place, file.stem, digest)
    if before is not None and (found := of_study(record := record_of(place, tag))) is not None and found.is_complete:
        return _shown(record)
    post_hoc = _post_hoc(place, earlier, text, scripts) if before is None else ()
    forecast = _forecast(place, planned, tag, facts["device"], workers or 1)
    lines = _forecast_lines(forecast, planned, digest)
    lines += [f"  post hoc, since runs of an earlier plan were seen: {change}" for change in post_hoc]
    if dry:
        return Answer(forecast, lambda: print_folded(lines))
    print_folded(lines)
    if before is None and not yes and _is_refused():
        return Answer(error="nothing was begun", exit_code=130)
    asked = {} if workers is None else {"workers": workers}
    if before is None:
        asked["study"] = Study(text, digest, post_hoc)  # type: ignore[assignment]
    request = Request(
        place, tag, planned.budget_s, planned.first_seed, asked, Limits(None, hours, 0), dataset=planned.dataset
    )
    with open_context(request) as context:
        greet(context)
        _enter(context, planned, scripts, file)
        run_night(context)
        record = of_journal(context.journal)
    return _shown(record)


def _shown(record: Record) -> Answer:
    """Return what a study has found so far; raise NightError for a night that is none."""
    found = of_study(record)
    if found is None:
        raise NightError(
            f"night {record.tag} is no study, and no file is called so; see it with: {typed('status', record.tag)}"
        )
    lines = [*study_lines(found, terminal_width()), f"the page: {typed('report', record.tag, '--open')}"]
    return Answer(StudyAnswer(record.tag, found), lambda: print_lines(lines))


def _tag(place: Place, name: str, digest: str) -> tuple[str, Night | None, Night | None]:
    """Return the tag of this plan's study, the study where it was begun, and the last of its name with another plan."""
    if not valid_tag(name):
        raise NightError(f"{name!r} is no name for a study; call the plan's file by letters, digits, '.', '_' and '-'")
    earlier = None
    for tag in itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2))):
        if not place.journal(tag).exists():
            if tag in tags_in(place.results) or refs_of_night(place.repo, tag):
                check_unpacked(place, tag)
                continue  # of a study elsewhere
            return tag, None, earlier
        with Journal.read(place.journal(tag)) as journal:
            night, has_runs = journal.night(), any(attempt.seeds for attempt in journal.attempts())
        if night.options.study is not None and night.options.study.sha256 == digest:
            return tag, night, earlier
        earlier = night if night.options.study is not None and has_runs else earlier
    raise AssertionError


def _post_hoc(place: Place, earlier: Night | None, text: str, scripts: Mapping[str, str]) -> tuple[str, ...]:
    """Return what is changed against an earlier plan and its scripts, after some of its runs were seen."""
    if earlier is None or earlier.options.study is None:
        return ()
    plan = earlier.options.study.plan
    lines = difflib.unified_diff(plan.splitlines(), text.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if line[0] in "+-" and line[1:].strip("+- ")]
    with Journal.read(place.journal(earlier.tag)) as journal:
        kept = {proposal.title: proposal.script for proposal in _entered(journal)}
    for arm in read_plan(plan).arms:
        if arm.name in scripts and kept.get(arm.name) != scripts[arm.name]:
            what = "is another one" if arm.name in kept else "was not kept, and may have been another one"
            changed.append(f"the script of arm {arm.name} {what}")
    return tuple(f"{earlier.tag}: {change}" for change in changed)


def _entered(journal: Journal) -> list[Proposal]:
    """Return the arms of a study that are in its journal, whether they have had a run or not."""
    ideas = [idea.proposal for idea in journal.waiting_ideas()]
    return [*ideas, *(attempt.proposal for attempt in arms_in(journal.attempts()))]


def _enter(context: NightContext, plan: Plan, scripts: Mapping[str, str], file: Path) -> None:
    """Commit the plan, and enter its arms into the journal; what is there already stays."""
    night, repo, state = context.night, context.place.repo, context.state()
    assert night.options.study is not None
    ref = f"refs/experiments/{night.tag}/plan"
    if repo.find(ref) is None:
        root = repo.root.resolve()
        path = (
            file.resolve().relative_to(root)
            if file.resolve().is_relative_to(root)
            else Path("experiments/studies", file.name)
        )
        message = f"Plan the study {night.tag}\n\nsha256 with its scripts: {night.options.study.sha256}\n"
        commit = repo.commit_script(night.base, path.as_posix(), night.options.study.plan, message, night.started)
        repo.set_ref(ref, commit, "the plan")
    why = {arm.name: arm.why for arm in plan.arms}
    proposals = {name: Proposal.of(script, name, why[name], PROPOSER) for name, script in scripts.items()}
    if not state.attempts:
        state.enter(None, proposals[plan.arms[0].name])
    entered = {proposal.title for proposal in _entered(context.journal)}
    for name in in_drawn_order(plan.arms[1:], night.options.study, 0):
        if name not in entered:
            context.journal.add_idea(Idea(0, 0, proposals[name]))


# ---- before the first run --------------------------------------------------------------------------------------------


def _forecast(place: Place, plan: Plan, tag: str, device: str, workers: int) -> StudyForecast:
    """Say what a plan can show, by the noise of the earlier night on this device whose budget is the nearest."""
    past = [
        record
        for record in past_nights(place, tag)
        if record.device == device and record.sigma_bpb and record.night.options.metric is None
    ]
    past.sort(key=lambda record: abs(math.log(record.budget_s / plan.budget_s)))
    sigma = past[0].sigma_bpb if past and plan.primary == "val_bpb" else None
    tests, runs = len(plan.arms) - 1, plan.seeds * len(plan.arms)
    most = None
    if sigma is not None:
        shown = (
            seeds for seeds in range(2, MOST_SEEDS) if smallest_difference(plan, seeds, tests) * sigma <= plan.margin
        )
        most = next(shown, None)
    return StudyForecast(
        tag=tag,
        device=device,
        arms=len(plan.arms),
        seeds=plan.seeds,
        runs=runs,
        hours=math.ceil(runs / workers) * Pace.of((), (), plan.budget_s).run_s / 3600,
        sigma_bpb=sigma,
        sigma_of=None if sigma is None else past[0].tag,
        smallest_sigmas=smallest_difference(plan, plan.seeds),
        smallest_corrected_sigmas=smallest_difference(plan, plan.seeds, tests),
        seeds_for_margin=most,
    )


def _forecast_lines(forecast: StudyForecast, plan: Plan, digest: str) -> list[str]:
    one, all_of_them, sigma = forecast.smallest_sigmas, forecast.smallest_corrected_sigmas, forecast.sigma_bpb

    def size(sigmas: float) -> str:
        return f"{sigmas:.1f} σ" if sigma is None else f"{sigmas:.1f} σ ({sigmas * sigma:.4f})"

    lines = [
        f"study {forecast.tag}: {plan.question}",
        f"  {counted(forecast.arms, 'arm')} × {counted(forecast.seeds, 'seed')} of {plan.budget_s:g} s: "
        f"{forecast.runs} runs, about {duration(forecast.hours)} on {forecast.device}",
        f"  {counted(forecast.seeds, 'seed')} show a difference of {size(one)} in 4 of 5 studies, or of "
        f"{size(all_of_them)} with the correction for {counted(forecast.arms - 1, 'comparison')}; "
        f"less where a seed does the same to two arms",
    ]
    if sigma is None:
        lines.append("  σ, how far one run moves with its seed, is not known: no earlier night here has measured it")
    else:
        needed = (
            f"{MOST_SEEDS} seeds or more"
            if forecast.seeds_for_margin is None
            else counted(forecast.seeds_for_margin, "seed")
        )
        lines.append(f"  σ is {sigma:.4f} by night {forecast.sigma_of}; the margin of {plan.margin:g} takes {needed}")
    return [*lines, f"  sha256 of the plan with its scripts: {digest}"]


def _is_refused() -> bool:
    """Ask whether to begin, where somebody can answer."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        return input("begin? [y/N] ").strip().lower() not in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        return True

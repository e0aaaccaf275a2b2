"""An attempt once more, beside what the night measured: nightshift replay."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from agent.cli.answer import Answer
from agent.cli.attempts import attempt_meant, script_of
from agent.cli.options import Seed
from agent.cli.rerun import Original, prepared, run_again, runner_for, taken_out
from agent.clock import kept_awake
from agent.errors import NightError
from agent.experiment import Run
from agent.files import ignore_all, remove
from agent.model import weights
from agent.night.lock import NOW, Stop, handling, like_ctrl_c, only_night
from agent.night.opening import check_disk
from agent.runs.runner import Stopped
from agent.text import SCORE_DECIMALS
from agent.view.answer import Replay, ReplayAnswer, plain
from agent.view.live.screen import Screen
from agent.view.replayed import Replayed, replayed
from agent.view.screen import steadfast

ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def replay(attempt: str, /, *, seed: Seed | None = None, out: Path | None = None) -> Answer:
    """Run an attempt of a night once more, and compare its score with the night's own.

    It runs in a fresh folder: its committed script, its seed, the night's budget, sandbox and scoring. The night's
    journal and branch stay as they are.

    Args:
        attempt: its number, best or confirmed, as in 4, wide:4, wide:best
        seed: another seed (default: that of its first run)
        out: keep weights, curve and logs there (default: experiments/nights/TAG/replays/N-TIME)
    """
    place, facts, chosen = attempt_meant(attempt)
    original = Original.of(place, facts, chosen, script_of(place, facts, chosen))
    seed = seed if seed is not None else next((run.seed for run in chosen.runs), 0)
    screen = Screen(Console(file=steadfast(sys.stdout)), facts.budget_s)
    with ExitStack() as undo:
        tell = undo.enter_context(only_night(place.repo.common_dir))
        check_disk(place.repo.root)
        work, kept = undo.enter_context(_folders(original, out))
        tell(f"{facts.tag}/replays/{work.parent.name}", work.parent)
        undo.callback(screen.close)
        screen.said(f"replay of attempt {chosen.number} of night {facts.tag}, seed {seed}: {chosen.title}")
        with like_ctrl_c():
            night = prepared(original, seed, work)
        stop = Stop(work.parent)
        undo.enter_context(handling(lambda number, frame: stop.wish(NOW), *ENDING))
        undo.enter_context(kept_awake())
        runner = runner_for(original, night, work, screen, lambda: stop.now)
        screen.said(f"  {facts.budget_s:g} s of training on {night.device}, sandbox: {runner.box.name}")
        try:
            again, run = run_again(original, seed, runner, screen)
        except Stopped:
            screen.close()
            sentence = "the replay was ended early, and nothing of it is kept"
            return Answer({"state": "unfinished"}, error=sentence, exit_code=130)
        screen.close()
        taken_out(runner, original, run, kept)
        found = replayed(facts, chosen, again)
        told = plain(_told(original, again, run, found, kept))
        (kept / weights.REPLAY).write_text(json.dumps(told, indent=1) + "\n")
        for line in _lines(original, again, found, kept):
            screen.said(line)
    return Answer(told)


@contextmanager
def _folders(original: Original, out: Path | None) -> Iterator[tuple[Path, Path]]:
    """Yield a folder to work in, which is gone afterwards, and the one to keep, gone where nothing was put there."""
    if out is not None and (out.exists() or out.is_symlink()) and not (out.is_dir() and not any(out.iterdir())):
        raise NightError(f"{out} holds something already; name a new folder with --out")
    name = f"{original.attempt.number}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    home = original.folder / "replays" / name
    work, kept = home / "work", out if out is not None else home
    work.mkdir(parents=True)
    ignore_all(original.place.nights)
    kept.mkdir(parents=True, exist_ok=True)  # before minutes are spent on what could not be written
    try:
        yield work, kept
    finally:
        remove(work)
        (home / "stop").unlink(missing_ok=True)
        for folder in (kept, home, home.parent, original.folder):
            with suppress(OSError):
                folder.rmdir()  # only an empty one


def _told(original: Original, again: Replay, run: Run, found: Replayed, kept: Path) -> ReplayAnswer:
    facts, attempt = original.facts, original.attempt
    return ReplayAnswer(
        tag=facts.tag,
        attempt=attempt.number,
        title=attempt.title,
        commit=attempt.commit,
        budget_s=facts.budget_s,
        verdict=found.verdict,
        sentence=found.sentence,
        now=again,
        then=found.before,
        difference_bpb=found.difference_bpb,
        noise_bpb=found.noise_bpb,
        device_then=facts.device,
        protocol_then=facts.protocol,
        ending=run.ending,
        wall_s=run.wall_s,
        folder=str(kept),
    )


def _lines(original: Original, again: Replay, found: Replayed, kept: Path) -> list[str]:
    then = found.before
    lines = [f"  now   {_score(again.val_bpb)}  seed {again.seed}, {original.facts.budget_s:g} s on {again.device}"]
    if then is not None:
        how = f"seed {then.seed}" if then.seed is not None else f"the mean of {then.runs} runs"
        lines.insert(0, f"  then  {_score(then.val_bpb)}  {how}, {original.attempt.started[:10]}")
    names = ", ".join(sorted(path.name for path in kept.iterdir() if path.is_file() and path.name != "stop"))
    here = Path.cwd()
    shown = kept.relative_to(here) if kept.is_relative_to(here) else kept
    return [*lines, found.sentence, f"kept in {shown}: {names}"]


def _score(val_bpb: float | None) -> str:
    return "no score" if val_bpb is None else f"{val_bpb:.{SCORE_DECIMALS}f}"

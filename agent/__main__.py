"""The command line: parse, wire, exit code. Every error that a person can mend passes through one door, here."""

import argparse
import math
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from rich.console import Console

from agent import report
from agent.box import Box, Mode, choose
from agent.caps import caps_of_machine
from agent.clock import kept_awake
from agent.dials import searched
from agent.errors import NightError, NightshiftError
from agent.experiment import Attempt, Night, incumbent
from agent.journal import Journal, disk_is_broken, disk_is_full
from agent.judge import PLAUSIBLE_GAIN, Greedy
from agent.lock import holder, is_held, only_night
from agent.night import Lab, Limits, run_night, write_ledger
from agent.opening import Place, Request, open_night
from agent.plain_text import harmless_lines
from agent.repo import Repo
from agent.run import FIRST_ALLOWANCE_S
from agent.screen import Screen, let_go, steadfast
from agent.stop import AFTER_RUN, NOW, Stop, like_ctrl_c
from agent.workshop import Workshop

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Command = Callable[[argparse.Namespace], int]
EXAMPLES = """\
examples:
  nightshift run                                    five-minute experiments until you stop it
  nightshift run --experiments 3 --budget-s 30      a first look
  nightshift run --hours 8 --tag wide               a night; the same command with the tag goes on after a stop
  nightshift status ; nightshift results            how it goes
  nightshift show 4 ; nightshift diff 4             one attempt: what, why, how it ended
"""


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    try:
        code = int(options.command(options))
        sys.stdout.flush()
    except NightshiftError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return 130  # before a night has begun; a running one takes Ctrl-C as a wish
    except BrokenPipeError:
        let_go(sys.stdout)
        return 0  # its reader, such as head, has seen enough
    except (OSError, sqlite3.OperationalError) as error:
        return _refuse(_mended_by_hand(error))
    return code


def _refuse(sentence: str) -> int:
    with suppress(OSError):  # the terminal may be gone
        print(f"nightshift: {sentence}", file=sys.stderr)
    return 2


def _mended_by_hand(error: OSError | sqlite3.OperationalError) -> str:
    """What a full disk or a lack of permission says; any other error of SQLite is ours, and raised again."""
    if disk_is_full(error):
        return "no space left on the disk; free some and resume with: nightshift run --tag TAG (nothing is lost)"
    if disk_is_broken(error):
        return (
            f"the disk failed ({error}); see what the system's log says about it, free space if there is none, "
            f"and resume with: nightshift run --tag TAG (nothing is lost)"
        )
    if isinstance(error, OSError):
        what = f"cannot use {error.filename}: " if error.filename else ""
        return f"{what}{error.strerror or error}; check its path, owner and permissions"
    if any(words in str(error) for words in ("unable to open", "readonly", "read-only")):
        return f"cannot use the night's journal: {error}; make experiments/nights writable"
    raise error


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="nightshift",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Research on one training script overnight: propose, commit, train, score, keep what is better.",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    table = _add(commands, "results", results, "the ledger as a table")
    table.add_argument("--tag", help="this night only (default: the latest)")
    table.add_argument("--all", action="store_true", help="every night, also those that came with the repository")
    _add(commands, "status", status, "what runs now, and how the latest night stands")
    end = _add(commands, "stop", stop, "end the running night after its current run")
    end.add_argument("--now", action="store_true", help="end the run too; it is redone when the night is resumed")
    for name, command, text in (("show", show, "everything about one attempt"), ("diff", diff, "an attempt's edit")):
        one = _add(commands, name, command, text)
        one.add_argument("number", type=int, metavar="N", help="the attempt's number")
        one.add_argument("--tag", help="of this night (default: the latest)")
    picture = _add(commands, "plot", plot, "draw the progress: kept, discarded, running minimum")
    picture.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .png or .svg file")
    _add_profile(commands)
    _add(commands, "doctor", doctor, "check Python, MLX, BLAS, git, disk, memory and data")
    return top


def run(options: argparse.Namespace) -> int:
    place = Place.of(options.script)
    with ExitStack() as undo:
        # the lock comes before the tag: two nights begun at once must not find the same tag free
        tell = undo.enter_context(only_night(place.repo.common_dir()))
        with like_ctrl_c():
            box = choose(options.sandbox)
            night = open_night(place, Request(options.tag, options.budget_s, options.seed), searched)
        tell(night.tag, place.folder(night.tag))
        from agent.proposers.search import Search  # Optuna takes a second to import; a refusal does without

        stop = Stop(place.folder(night.tag))
        stop.forget()
        undo.enter_context(stop.on_signals())
        undo.enter_context(kept_awake())
        journal = undo.enter_context(Journal.resume(place.journal(night.tag)))
        undo.enter_context(last_row(place, journal))
        screen = Screen(Console(file=steadfast(sys.stdout)), night.budget_s, lambda: stop.after_run)
        undo.callback(screen.close)
        _greet(screen, place, night, box, options)
        folder, caps = place.folder(night.tag), caps_of_machine()
        shop = Workshop(night, folder, box, caps, options.allowance_s, lambda: stop.now, screen.progressed)
        limits = Limits(options.experiments, options.hours)
        search = Search(night.device_kind, f"{night.tag} {night.seed}")  # another night tries other things first
        judge, plausible = Greedy(options.confirm), options.plausible_gain / 100
        run_night(Lab(place, journal, shop, search, judge, screen, stop, limits, plausible))
        screen.close()
        _goodbye(screen, night, journal.attempts())
    return 0


@contextmanager
def last_row(place: Place, journal: Journal) -> Iterator[None]:
    """A full disk ends a night, but not before the ledger has a row of everything that the journal knows."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        if disk_is_full(error):
            journal.give_reserve()
            with suppress(OSError, sqlite3.OperationalError, NightError):
                write_ledger(place, live=(journal.night(), journal.attempts()))
        raise


def results(options: argparse.Namespace) -> int:
    place = _where(options.tag)
    if place.tags() and not is_held(place.repo.common_dir()):
        write_ledger(place)  # a running night does it by itself, and must not be overtaken by an older rendering
    rows = report.read_rows(place.ledger)
    if not options.all:
        tag = options.tag or (place.tags()[-1] if place.tags() else None)
        rows = [row for row in rows if tag is None or row.get("tag") == tag]
        if options.tag and not rows:
            raise NightError(f"results.tsv has no night {options.tag}; see them all with: nightshift results --all")
    if not rows:
        begin = "see: nightshift status, nightshift results --all" if place.tags() else "begin with: nightshift run"
        raise NightError(f"no results yet; {begin}")
    Console().print(report.results_table(rows))
    return 0


def status(options: argparse.Namespace) -> int:
    place = _where()
    who = holder(place.repo.common_dir())
    tag = who.tag if who and place.journal(who.tag).exists() else None
    night, history = _night(place, tag)
    running = who is not None and who.tag == night.tag
    stopping = Stop(place.folder(night.tag)).after_run
    for line in report.status_lines(night, history, pid=who.pid if who and running else None, stopping=stopping):
        print(line)
    return 0


def stop(options: argparse.Namespace) -> int:
    place = _where()
    who = holder(place.repo.common_dir())
    if who is None or not place.folder(who.tag).is_dir():
        raise NightError("no night is running in this repository; see: nightshift status")
    Stop(place.folder(who.tag)).wish(NOW if options.now else AFTER_RUN)
    print(f"night {who.tag} ends {'now' if options.now else 'after its current run'}")
    return 0


def show(options: argparse.Namespace) -> int:
    place = _where(options.tag)
    night, history = _night(place, options.tag)
    attempt = _pick(history, options.number, night)
    folder = place.folder(night.tag) / "runs" / f"{attempt.number:04d}"
    who = holder(place.repo.common_dir())
    running = who is not None and who.tag == night.tag
    Console().print(report.attempt_view(night, attempt, folder, running=running))
    return 0


def diff(options: argparse.Namespace) -> int:
    place = _where(options.tag)
    night, history = _night(place, options.tag)
    attempt = _pick(history, options.number, night)
    parent = night.base if attempt.parent is None else history[attempt.parent].commit
    if attempt.commit is None or parent is None:
        raise NightError(f"attempt {attempt.number} of night {night.tag} is not committed yet; try again in a moment")
    print(harmless_lines(place.repo.diff(parent, attempt.commit)))
    return 0


def plot(options: argparse.Namespace) -> int:
    report.plot(report.read_rows(_where().ledger), options.out)
    print(f"wrote {options.out}")
    return 0


def doctor(options: argparse.Namespace) -> int:
    from agent.doctor import examine

    return examine(Console())


def profile(options: argparse.Namespace) -> int:
    from agent.phases import Request
    from agent.phases import profile as take_apart

    request = Request(options.script, options.steps, options.seed, options.trace, options.json)
    return take_apart(request, Console())


def _add_run(commands: Commands) -> None:
    night = _add(commands, "run", run, "run a night, or go on with one")
    night.add_argument(
        "--experiments",
        type=_positive_int,
        metavar="N",
        help="end after N proposals beyond attempt 0, counted over the whole night",
    )
    night.add_argument(
        "--hours",
        type=_positive,
        metavar="H",
        help="begin no attempt that would end after H hours, judged by the night's longest so far",
    )
    night.add_argument(
        "--budget-s", type=_positive, metavar="S", help="training time of every run (default: prepare.TIME_BUDGET_S)"
    )
    night.add_argument("--tag", metavar="T", help="the night's name (default: the date); an existing one is resumed")
    night.add_argument(
        "--seed", type=_seed, metavar="K", help="of the first run of every attempt, and of the search (0)"
    )
    night.add_argument("--script", type=Path, default=Path("train_mlx.py"), metavar="PATH", help="default: %(default)s")
    night.add_argument(
        "--allowance-s",
        type=_positive,
        metavar="S",
        help="for start, compilation and saving, beyond the budget, before a run is killed (default: "
        f"{FIRST_ALLOWANCE_S:g} for attempt 0, then what that took and little more)",
    )
    night.add_argument(
        "--sandbox",
        type=Mode,
        choices=list(Mode),
        default=Mode.AUTO,
        help="auto: the strongest that works here; require: bubblewrap or Seatbelt, or refuse (default: %(default)s)",
    )
    night.add_argument(
        "--confirm",
        type=_count,
        default=0,
        metavar="N",
        help="measure what would be kept with N more seeds before it is (default: %(default)s)",
    )
    night.add_argument(
        "--plausible-gain",
        type=_positive,
        default=100 * PLAUSIBLE_GAIN,
        metavar="PERCENT",
        help="a larger gain in one step is shown, not kept (default: %(default)g)",
    )


def _add_profile(commands: Commands) -> None:
    look = _add(commands, "profile", profile, "where the time of a training step goes, phase by phase")
    look.add_argument("--script", type=Path, default=Path("train_mlx.py"), metavar="PATH", help="default: %(default)s")
    look.add_argument("--steps", type=_positive_int, default=16, metavar="N", help="to train (default: %(default)s)")
    look.add_argument("--seed", type=_seed, default=0, metavar="K", help="default: %(default)s")
    look.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    look.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="run once more under the GPU's own recorder: Metal System Trace (name a .trace file; unverified on a Mac) "
        "or Nsight Systems",
    )


def _add(commands: Commands, name: str, command: Command, text: str) -> argparse.ArgumentParser:
    sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    sub.set_defaults(command=command)
    return sub


def _greet(screen: Screen, place: Place, night: Night, box: Box, options: argparse.Namespace) -> None:
    until = [f"{options.experiments} experiments after attempt 0"] if options.experiments else []
    until += [f"{options.hours:g} hours"] if options.hours else []
    screen.said(f"night {night.tag} on branch {night.branch.removeprefix('refs/heads/')}")
    screen.said(f"  script   {place.script_path}")
    screen.said(f"  device   {night.device} ({night.device_kind})")
    screen.said(f"  budget   {night.budget_s:g} s of training a run; {', '.join(until) or 'until stopped'}")
    screen.said(f"  data     {night.data} (protocol {night.protocol})")
    screen.said(f"  sandbox  {box.name}")
    for gap in box.uncovered:
        screen.said(f"           not covered: {gap}")
    screen.said(f"  logs     {place.folder(night.tag) / 'runs'}")
    screen.said("  Ctrl-C ends after the current run, a second one ends the run too")


def _goodbye(screen: Screen, night: Night, history: Sequence[Attempt]) -> None:
    for line in report.status_lines(night, history, pid=None, stopping=False)[2:]:
        screen.said(line)
    best = incumbent(history)
    if best is not None and best.number > 0:
        screen.said(f"read next: nightshift show {best.number}, nightshift diff {best.number}, nightshift results")
    screen.said(f"go on with: nightshift run --tag {night.tag}")


def _here() -> Place:
    return Place.of(Path("train_mlx.py"))


def _where(tag: str | None = None) -> Place:
    """Here; but where a night runs in another working tree of the repository and may be meant, that one."""
    here = _here()
    who = holder(here.repo.common_dir())
    if who is None or tag not in (None, who.tag) or not Path(who.folder, "journal.sqlite").is_file():
        return here
    return Place(Repo(Path(who.folder).parents[2]), here.script)


def _night(place: Place, tag: str | None) -> tuple[Night, tuple[Attempt, ...]]:
    """A night with a journal here: this one, or the latest."""
    tags = place.tags()
    if tag is None and not tags:
        raise NightError("no night has run here yet; begin with: nightshift run")
    if tag is not None and tag not in tags:
        raise NightError(f"night {tag} has no journal here; there are: {', '.join(tags) or 'none'}")
    with Journal.read(place.journal(tag or tags[-1])) as journal:
        return journal.night(), journal.attempts()


def _pick(history: Sequence[Attempt], number: int, night: Night) -> Attempt:
    if not 0 <= number < len(history):
        last = f"0 to {len(history) - 1}" if history else "none yet"
        raise NightError(f"night {night.tag} has no attempt {number}; there are: {last}")
    return history[number]


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return number


def _positive_int(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(text)


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text) < 100):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 99")
    return int(text)


def _seed(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {2**32 - 1}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())

"""Run the command line: find the command, act, return an exit code. Every error becomes a sentence here."""

import codecs
import inspect
import io
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agent import __version__
from agent.errors import MachineError, NightHalted, NightshiftError, UsageError
from agent.files import disk_fails, steadfast
from agent.git import leave_surrounding_git
from agent.invocation import typed
from agent.text import harmless_lines, one_line
from agent.view.answer import Answer

if TYPE_CHECKING:
    from cyclopts import App

# Where the function of each command is, and what `nightshift --help` says of it. Its options are the function's
# parameters, and its own help is the docstring. Only the file of the command that is given is imported.
COMMANDS = {
    "init": ("agent.cli.init:init", "make a folder ready for nights"),
    "run": ("agent.cli.run:run", "start a night, or resume one"),
    "confirm": ("agent.cli.run:confirm", "measure the best script again, and drop edits without effect"),
    "study": ("agent.cli.study:study", "answer a question by a plan: fixed arms, several seeds each"),
    "try": ("agent.cli.trying:try_edit", "train, score, judge and record one edit of yours"),
    "note": ("agent.cli.status:note", "leave a note that a model or an agent reads"),
    "stop": ("agent.cli.status:stop", "end the running night after its current run"),
    "status": ("agent.cli.status:status", "show what runs now, and how the latest night stands; --follow: live"),
    "replay": ("agent.cli.run:replay", "show a recorded night as it was, in half a minute"),
    "report": ("agent.cli.report:report", "write a page for a browser: what was tried, and what helped"),
    "serve": ("agent.cli.report:serve", "the report as a live page on this machine"),
    "results": ("agent.cli.lists:results", "show results.tsv as a table"),
    "show": ("agent.cli.show:show", "show the best attempt, or another; --diff: its edit"),
    "ideas": ("agent.cli.ideas:ideas", "list the known ideas, their expected gains, and which apply"),
    "prompt": ("agent.cli.ideas:prompt", "print what a model would be told now; --facts: what an agent"),
    "take": ("agent.cli.take:take", "put an attempt's script into the working tree"),
    "sample": ("agent.cli.export:sample", "continue a text with a kept model"),
    "export": ("agent.cli.export:export", "write a model for mlx-lm, or the record of a night"),
    "nights": ("agent.cli.lists:nights", "list all nights here: state, attempts, best, honest gain, size"),
    "pack": ("agent.cli.pack:pack", "pack a night into one file, to move it or to make room"),
    "unpack": ("agent.cli.pack:unpack", "restore a packed night"),
    "doctor": ("agent.cli.doctor:doctor", "check whether this machine has what a night needs"),
    "mcp": ("agent.mcp:mcp", "offer the commands as tools to coding agents"),
}
# Words of git, uv and other tools that are typed here by habit, for the command or the option that does it.
MEANT = {
    "--help": "help",
    "--version": "version -v -V",
    "run": "start begin",
    "run --tag TAG": "resume continue restart",
    "stop": "cancel end quit exit pause",
    "stop --now": "kill abort",
    "status": "ps info",
    "status --follow": "watch follow tail attach",
    "results": "log history attempts",
    "nights": "list ls",
    "show best": "best",
    "show best --diff": "diff",
    "show best --log": "logs",
    "show A B": "compare",
    "take": "checkout apply",
    "try": "edit test submit",
    "try --queue": "add queue commit",
    "serve": "web ui dashboard",
    "replay": "play demo",
    "report --open": "open view",
    "pack TAG": "archive backup save",
    "pack TAG --remove": "rm remove delete clean",
    "unpack TAG": "restore load",
    "init": "new create setup install",
    "doctor": "check",
    "--tag": "--resume --continue --name --night",
    "--hours": "--time --duration --until",
    "--budget-s": "--seconds --minutes --time-budget",
    "--experiments": "--count --max --iterations",
    "--llm": "--model",
    "--command": "--agent",
    "--dataset": "--data --corpus",
    "--workers": "--jobs --parallel --gpus",
    "--follow": "--watch --live -f",
    "--out": "--output -o",
    "--message": "--title",
}
CLOSE = 0.65  # the least likeness of a slip: tga is tag
OVERVIEW = """\
Usage: {nightshift} COMMAND …

Research on one training script overnight: propose, commit, train, score, keep
what is better.

Commands:
{commands}

{nightshift} COMMAND --help explains a command. Name a night by its TAG.
Name an attempt of the latest night by its number, best or confirmed,
and one of another night as in TAG:4 or TAG:best.

Examples:
  {nightshift} init night                          # prepare your own folder
  {nightshift} run                                 # until you stop it
  {nightshift} run --experiments 3 --budget-s 10   # a first look
  {nightshift} run --hours 8 --tag wide            # a night
  {nightshift} run --llm openai:gpt-5              # ask a language model, too
  {nightshift} try -m "warm up longer, to ..."     # one edit of yours
  {nightshift} show 4 --diff                       # the edit of one attempt"""
# Signs in place of those that the output's encoding lacks.
SIGNS = str.maketrans("→…✓✗−–·×", ">.+x---x") | {ord("σ"): "sigma", ord("±"): "+-"}
Command = Callable[..., Answer | None]


def main(argv: Sequence[str] | None = None) -> int:
    leave_surrounding_git()
    _hold_places()
    _have_streams()
    try:
        return _done(tuple(sys.argv[1:] if argv is None else argv))
    finally:
        for stream in (sys.stdout, sys.stderr):
            steadfast(stream).flush()  # Python would try again at exit, and change the exit code


def _done(given: Sequence[str]) -> int:
    """Do what a command line says, and return the exit code."""
    words, is_json = without_json(given)
    try:
        # With --json, words for people go to stderr.
        with redirect_stdout(sys.stderr) if is_json else nullcontext():
            answer = _answer(words, given, is_json)
    except BrokenPipeError:
        return 0  # the reader of the pipe, such as head, has seen enough
    except Exception as error:
        if is_json:
            sentence = f"{type(error).__name__}: {error}; this is a defect, please report it with what stderr says"
            print(Answer(error=sentence, exit_code=1).as_json(), flush=True)
        raise
    if is_json:
        try:
            print(answer.as_json(), flush=True)
        except BrokenPipeError:
            return answer.exit_code
        except OSError as error:  # a program must not take a part of the answer for the whole
            with suppress(OSError):  # standard error may go to the same full disk
                print(harmless_lines(f"nightshift: {_in_words(error, given)}"), file=sys.stderr)
            return _code_of(error)
    return answer.exit_code


def _hold_places() -> None:
    """Make the folders that variables name the same for processes that work in another folder."""
    for name in ("NIGHTSHIFT_CACHE", "NIGHTSHIFT_DATA"):
        place = os.environ.get(name, "~")
        if place and not place.startswith("~"):
            os.environ[name] = str(Path(place).absolute())


def _have_streams() -> None:
    """Open streams to nowhere in place of closed ones, and replace signs that the encoding of stdout lacks.

    A night's files must not get the numbers of closed streams, and its processes inherit the streams.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115, it stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    codecs.register_error("nightshift", _replaced)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a caller of main() may have put another object there
        sys.stdout.reconfigure(errors="nightshift")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Return signs of ASCII in place of those that cannot be encoded, and where these end."""
    assert isinstance(error, UnicodeEncodeError)
    signs = error.object[error.start : error.end].translate(SIGNS)
    return signs.encode("ascii", "replace").decode(), error.end


def without_json(words: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Take --json out of the words of a command line; what follows a -- stays as it is."""
    end = words.index("--") if "--" in words else len(words)
    return (*(word for word in words[:end] if word != "--json"), *words[end:]), "--json" in words[:end]


def _answer(words: Sequence[str], given: Sequence[str], is_json: bool) -> Answer:
    """Return the answer to a command line, and show it to people unless --json asked for it."""

    def act() -> Answer:
        answer = _acted(words, is_json)
        if not is_json:
            answer.show()
        sys.stdout.flush()
        return answer

    answer = answer_of(act, given)
    if answer.error is not None:
        from agent.view.screen import print_folded, print_lines  # slow to import

        with suppress(OSError):  # the terminal may be gone
            more = f"; go on with: {answer.facts['go_on_with']}" if "go_on_with" in answer.facts else ""
            print_folded(f"nightshift: {answer.error}{more}".split("\n"), stderr=True)
            if (excerpt := answer.facts.get("excerpt")) is not None:
                print_lines([str(excerpt)], stderr=True)
    return answer


def answer_of(act: Callable[[], Answer | None], given: Sequence[str]) -> Answer:
    """Call a command, and return its answer, also where it fails for a reason that its user can repair.

    given: the words of the command line, which an error repeats where the same command goes on.
    """
    try:
        return act() or Answer()
    except BrokenPipeError:
        raise
    except NightshiftError as error:
        return Answer(error.facts, error=str(error), exit_code=error.exit_code)
    except KeyboardInterrupt:  # a running night takes Ctrl-C as a wish
        return Answer({"state": "unfinished", "go_on_with": typed(*given)}, error="interrupted", exit_code=130)
    except (NightHalted, OSError, sqlite3.OperationalError) as error:
        return Answer(error=_in_words(error, given), exit_code=_code_of(error))


def _code_of(error: NightHalted | OSError | sqlite3.OperationalError) -> int:
    """Return the exit code of a failing machine, or else of a path that cannot be used."""
    is_machine = isinstance(error, NightHalted) or disk_fails(error)
    return MachineError.exit_code if is_machine else UsageError.exit_code


def _in_words(error: NightHalted | OSError | sqlite3.OperationalError, given: Sequence[str]) -> str:
    """Explain a full disk or a missing permission; raise any other error of SQLite again, since it is a defect."""
    if isinstance(error, NightHalted):
        is_named = given[0] not in ("run", "try") or any(word.split("=")[0] == "--tag" for word in given)
        return _in_words(error.cause, given if is_named else (*given, "--tag", error.tag))
    resume = f"resume with: {typed(*given)} (nothing is lost)"
    if disk_fails(error):
        said = str(error) if isinstance(error, sqlite3.Error) else error.strerror
        said = f"{said}: {error.filename}" if isinstance(error, OSError) and error.filename else said
        return f"the disk is full, or it fails ({said}); free some space, or see the system's log, and {resume}"
    if isinstance(error, OSError):
        named = f"cannot use {error.filename}: " if error.filename else ""
        return f"{named}{error.strerror or error}; check its path, owner and permissions"
    if any(words in str(error) for words in ("unable to open", "readonly", "read-only")):
        return f"cannot use the night's journal: {error}; make experiments/nights writable"
    raise error


def _acted(words: Sequence[str], is_json: bool) -> Answer:
    if not words or words[0] in ("--help", "-h"):
        return Answer(show=lambda: print(overview()))
    if words[0] == "--version":
        return Answer(show=lambda: print(f"nightshift {__version__}"))
    name, *rest = words
    command = command_named(name)
    if is_json and not answers(command):
        raise UsageError(f"{name} has no --json; see: {typed(name, '--help')}")
    from cyclopts import CycloptsError, UnknownOptionError, UnusedCliTokensError

    try:
        answer: Answer | None = app_of(command, name)(rest, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        sentence = one_line(str(error), 500).rstrip(".")
        if isinstance(error, UnusedCliTokensError):
            sentence = f"{name} takes no such word: {' '.join(error.unused_tokens or ())}"
        elif isinstance(error, UnknownOptionError):
            option = (error.token.keyword or error.token.value).partition("=")[0]
            near = meant(option, [each for argument in error.argument_collection for each in argument.names])
            sentence = f"Unknown option: {option}{f'. Did you mean {near}?' if near else ''}"
        raise UsageError(f"{sentence}{see_also(sentence)}: {typed(name, '--help')}") from error
    return answer or Answer()


def meant(word: str, names: Iterable[str]) -> str | None:
    """Return the word that a wrong one stands for: another tool's word, a slip, or a short form; None if none is near.

    names: of the commands, or of a command's options.
    """
    plain = {name.lstrip("-"): name for name in names}
    for name, others in MEANT.items():
        if word in others.split() and name.split()[0].lstrip("-") in plain:
            return name
    near, begins = word.lstrip("-"), [name for name in plain if name.startswith(word.lstrip("-"))]
    found = begins if len(begins) == 1 else get_close_matches(near, plain, 1, CLOSE)
    return plain[found[0]] if near and found else None


def see_also(sentence: str) -> str:
    """Return what stands between a sentence and the command that tells more."""
    return " See" if sentence.endswith("?") else "; see"


def command_named(name: str) -> Command:
    """Return the function of a command; raise UsageError where there is none of this name."""
    if name not in COMMANDS:
        near = meant(name, (*COMMANDS, "--help", "--version"))
        guess = "" if near is None else f". Did you mean {typed(*near.split())}?"
        sentence = f"there is no command {name!r}{guess}"
        raise UsageError(f"{sentence}{see_also(sentence)} all with: {typed('--help')}")
    module, _, function = COMMANDS[name][0].partition(":")
    command: Command = getattr(import_module(module), function)
    return command


def answers(command: Command) -> bool:
    """Return whether a command answers with facts, and so has --json."""
    return inspect.signature(command).return_annotation is Answer


def app_of(command: Command, name: str) -> "App":
    """Return what reads the words of a command by its signature."""
    from cyclopts import App, Parameter

    kinds = {each.kind for each in inspect.signature(command).parameters.values()}
    options = " [OPTIONS]" if answers(command) or inspect.Parameter.KEYWORD_ONLY in kinds else ""
    words = " [ARGS]" if inspect.Parameter.POSITIONAL_ONLY in kinds else ""
    app = App(
        name=typed(name),
        usage=f"Usage: {typed(name)}{options}{words}",
        default_parameter=Parameter(negative=(), show_default=False),
        help_format="markdown",
        version_flags=[],
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    app["--help"].show = False
    app.default(command)
    if answers(command):  # main takes it out of the words; here it is for --help
        app.command(App(name="--json", help="print the answer as one JSON object (docs/json.md)", group="Parameters"))
    return app


def overview() -> str:
    """Return the text of `nightshift --help`."""
    commands = "\n".join(f"  {name:<9}{summary}" for name, (_, summary) in COMMANDS.items())
    return OVERVIEW.format(nightshift=typed(), commands=commands)

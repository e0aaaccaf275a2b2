"""Why a process crashed is the exception that ended it, whatever is printed before and after."""

import subprocess
import sys

import pytest
from test_process import run

from agent.judging.failures import process_failure
from agent.sandbox.crash import why_crashed

LATE = "import atexit, sys; atexit.register(print, 'bye', file=sys.stderr, flush=True)\n"
SURVIVED = "import traceback\ndef main():\n try: {}['lr']\n except KeyError: traceback.print_exc()\nmain()\n"
IN_A_THREAD = "import threading\nthread = threading.Thread(target=lambda: [][0])\nthread.start(); thread.join()\n"
CRASHES = {
    "an exception": ("raise ValueError('bad rows')", "ValueError: bad rows"),
    "a message of several lines": ("raise ValueError('bad rows\\nof\\nmany')", "ValueError: bad rows"),
    "one that begins with a line end": ("raise ValueError('\\n  bad rows\\n')", "ValueError: bad rows"),
    "one of blank lines": (LATE + "raise ValueError('\\n\\n')", "ValueError"),
    "no message": (LATE + "raise ValueError", "ValueError"),
    "a ruler for a message": ("raise ValueError('-----')", "ValueError: -----"),
    "notes": ("error = ValueError('bad rows')\nerror.add_note('-----')\nraise error", "ValueError: bad rows"),
    "words at the end": (LATE + "raise ValueError('bad rows')", "ValueError: bad rows"),
    "a log without its last line end": (
        "print('step 1', end='', flush=True)\nraise ValueError('x')", "ValueError: x",
    ),
    "a group": (
        "raise ExceptionGroup('of rows', [ValueError('a\\nb'), ExceptionGroup('in it', [TypeError('c')])])",
        "ExceptionGroup: of rows (2 sub-exceptions)",
    ),
    "a group of those that were raised": (
        "try: [][0]\nexcept IndexError as error: raise ExceptionGroup('of\\nrows', [error])", "ExceptionGroup: of",
    ),
    "a cause": ("try: [][0]\nexcept IndexError as error: raise ValueError('x') from error", "ValueError: x"),
    "an exception while another is handled": ("try: [][0]\nexcept IndexError: {}['lr']", "KeyError: 'lr'"),
    "a cause that is a group": (
        "try: raise ExceptionGroup('g', [ValueError('a')])\nexcept Exception as error: raise OSError('b') from error",
        "OSError: b",
    ),
    "a class in a function": (
        "def main():\n class Odd(Exception): pass\n raise Odd('x')\nmain()", "main.<locals>.Odd: x",
    ),
    "a script that is no Python": (LATE.strip() + "\nx = = 1", "SyntaxError: invalid syntax"),
    "a module that is no Python": ("import ast; ast.parse('x = = 1')", "SyntaxError: invalid syntax"),
    "too deep": ("def main(): main()\nmain()", "RecursionError: maximum recursion depth exceeded"),
    "Ctrl-C": ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt"),
    "a message of sys.exit": ("import sys; sys.exit('train: no data')", "train: no data"),
    "an exit code of its own": ("import sys; print('loss is nan at step 17'); sys.exit(3)", "loss is nan at step 17"),
    "one that was survived, then an exit": (SURVIVED + "raise SystemExit('no data')", "no data"),
    "one that was survived, then a code": (SURVIVED + "print('nan at step 3')\nraise SystemExit(3)", "nan at step 3"),
    "one that was survived, then another": (SURVIVED + "print('on')\nraise OSError('disk')", "OSError: disk"),
    "one that was printed, and nothing more": (SURVIVED + "raise SystemExit(1)", "KeyError: 'lr'"),
    "one in a thread, then another": (IN_A_THREAD + "raise OSError('disk')", "OSError: disk"),
    "another, then one in a thread": (
        "import threading, time\n"
        "def work():\n time.sleep(0.2); [][0]\nthreading.Thread(target=work).start()\nraise OSError('disk')",
        "OSError: disk",
    ),
    "one in a thread, then an exit": (IN_A_THREAD + "raise SystemExit('a worker failed')", "a worker failed"),
    "one that is ignored at the end": (
        "class Odd:\n def __del__(self): [][0]\nodd = Odd()\nraise OSError('disk')", "OSError: disk",
    ),
    "a fault of memory": (
        "import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)",
        "Fatal Python error: Segmentation fault",
    ),
    "C++": (
        "import faulthandler, os, sys; faulthandler.enable()\n"
        "print(\"terminate called after throwing an instance of 'std::bad_alloc'\\n  what():  std::bad_alloc\\n\""
        ", file=sys.stderr, flush=True); os.abort()",
        "what():  std::bad_alloc",
    ),
    "no word": ("raise SystemExit(1)", ""),
}  # fmt: skip


@pytest.mark.parametrize(("code", "why"), CRASHES.values(), ids=CRASHES)
def test_a_crash_is_told_by_what_ended_it(tmp_path, code, why):
    (tmp_path / "train.py").write_text(code)
    command, one_log = [sys.executable, "-u", "train.py"], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=tmp_path, text=True, check=False, **one_log)  # type: ignore[call-overload]
    assert why_crashed(done.stdout, done.returncode) == why


def test_colours_are_no_part_of_it():
    log = (
        'Traceback (most recent call last):\n  File \x1b[35m"<string>"\x1b[0m, line \x1b[35m1\x1b[0m, in \x1b[35m'
        "<module>\x1b[0m\n    \x1b[31m1\x1b[0m\x1b[1;31m/\x1b[0m0\n    \x1b[31m~\x1b[0m\n\x1b[1;35mZeroDivisionError"
        "\x1b[0m: \x1b[35mdivision by zero\x1b[0m\n-----\n"
    )
    assert why_crashed(log, 1) == "ZeroDivisionError: division by zero"


def test_it_is_found_before_a_message_that_fills_the_end_of_the_log(tmp_path):
    outcome = run(tmp_path, "-c", "raise ValueError('bad rows\\n' + 'row\\n' * 5000)")
    assert process_failure(outcome) == "exit code 1: ValueError: bad rows"
    assert outcome.last_lines.startswith("row\n")
    outcome = run(tmp_path, "-c", "raise ValueError('bad rows')")
    assert outcome.last_lines.count("ValueError") == 1


def test_a_log_made_to_be_searched_for_long_is_not():
    report = 'Traceback (most recent call last):\n  File "x", line 1, in <module>\n'
    assert why_crashed(report * 15_000, 1).startswith("File")

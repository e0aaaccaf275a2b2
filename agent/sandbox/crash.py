"""Find the line of a log that says why its process crashed: what is printed after it may be anything."""

import re
import signal

# Python's report of an exception that ends a program begins in the code of the whole script. That of one which was
# caught and printed, or which ended a thread, begins further inside. The report of a group of exceptions has a margin.
UNCAUGHT = re.compile(r'Traceback \(most recent call last\):\n((?:  \| )?)  File "[^\n]*", line \d+, in <module>\n')
UNPARSED = re.compile(r'^()  File "[^\n]*", line \d+\n', re.MULTILINE)  # the report of a script that is no Python
EXCEPTION = r"(?m)^{margin}([A-Za-z_][\w.<>]*)(?:: (.*))?$\n?(.*)"  # type, first line of the message, and the next line
BY_EXCEPTION = (1, -signal.SIGINT)  # these exit codes are those of an uncaught exception
# What C++, and then Python itself, say of an end by a signal. C++ knows more.
ABORTED = (r"(?m)^ *(what\(\):.*|libc\+\+abi: .*)$", r"(?m)^(Fatal Python error: .*)$")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
WORD = re.compile(r"[^\W_]")  # a ruler, as between the exceptions of a group, has no such character


def why_crashed(log: str, exit_code: int) -> str:
    """Return the exception that ended the process, as its type and the first line of its message, or what C++ says.

    Where there is neither, return the last line that has a word; "" if none has.
    """
    text = "\n".join(COLOUR.sub("", log).splitlines())
    why = _exception(text) if exit_code in BY_EXCEPTION else _abortion(text) if exit_code < 0 else None
    return why or next((line.strip() for line in reversed(text.split("\n")) if WORD.search(line)), "")


def _exception(text: str) -> str | None:
    report = next(reversed([*UNCAUGHT.finditer(text)]), None) or UNPARSED.search(text)
    found = report and re.compile(EXCEPTION.format(margin=re.escape(report[1]))).search(text, report.end())
    if not found:
        return None
    kind, message, following = (part and part.strip() for part in found.groups())
    if message == "":  # the message begins with a line end
        message = following
    return f"{kind}: {message}" if message else kind


def _abortion(text: str) -> str | None:
    said = (re.findall(pattern, text) for pattern in ABORTED)
    return next((lines[-1] for lines in said if lines), None)

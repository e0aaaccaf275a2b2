"""Define the errors that a user can repair, each shown as one sentence.

NightshiftError
├── UsageError     an invalid command line
├── ScriptError    the training script: missing, unparsable, without the contract, unreadable dials
├── RepoError      git: not a repository, no commits, a branch that another program moved
│   └── NoRepository  there is none, or it has no commits
├── NightError     tags, locks, journals, options that the night cannot use
│   └── NothingYet what is asked for is not there so far: a night, a result, a night that runs
├── MachineError   disk, data, devices, missing packages, programs and keys
├── NoIdea         a proposer has no idea this time; another proposer may have one
└── Exhausted      a proposer has no further idea for this script
"""

import sqlite3


class NightshiftError(Exception):
    """Carry one sentence for the user, with the offending value and the remedy; `facts` go into the JSON answer."""

    exit_code = 2

    def __init__(self, sentence: str = "", **facts: object) -> None:
        super().__init__(sentence)
        self.facts = facts


class UsageError(NightshiftError):
    """Say that the command line is invalid."""


class ScriptError(NightshiftError):
    """Say that the training script is missing, unreadable or breaks its contract."""


class RepoError(NightshiftError):
    """Say that git failed, or that the repository cannot hold a night."""


class NoRepository(RepoError):
    """Say that a folder is in no git repository, or in one without commits."""


class NightError(NightshiftError):
    """Say that a tag, lock, journal or option cannot be used."""


class NothingYet(NightError):
    """Say that the command is right, and that what it is about is not there so far.

    It has an exit code of its own, so that a script that polls can tell it from a mistake in the command. It is that of
    `systemctl status` for a service that does not run.
    """

    exit_code = 3


class MachineError(NightshiftError):
    """Say that this machine lacks a device, package, program, key, corpus, memory or disk space.

    The command is right, and the exit code is that of a crash.
    """

    exit_code = 1


class NoIdea(NightshiftError):
    """Say that a proposer has no idea this time, for example because its server is down."""


class Exhausted(NightshiftError):
    """Say that a proposer has no further idea for this script."""


class NightHalted(Exception):
    """Say that the machine failed while a night was open; the cause says how."""

    def __init__(self, tag: str, cause: OSError | sqlite3.OperationalError) -> None:
        super().__init__(f"night {tag} was halted: {cause}")
        self.tag = tag
        self.cause = cause

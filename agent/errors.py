"""What can go wrong in a way that a person can repair: one base, one sentence each.

NightshiftError
├── UsageError     the words of the command line
├── ScriptError    the training script: missing, unparsable, without the contract, unreadable dials
├── RepoError      git: not a repository, no commits, a branch that somebody else moved
│   └── NoRepository  there is none, or nothing was committed to it
├── NightError     tags, locks, journals, options that do not fit the night
├── MachineError   disk, data, devices, missing packages
│   └── Starved    other programs have used up memory or disk, again and again
├── NoIdea         a proposer has no idea this time; another may have one
└── Exhausted      a proposer has nothing left to propose; the night ends
"""


class NightshiftError(Exception):
    """Names the offending value and the remedy; shown to the user as it stands."""

    exit_code = 2


class UsageError(NightshiftError):
    """Words of a command line that it does not take; usage shows those that it does."""

    def __init__(self, sentence: str, usage: str) -> None:
        super().__init__(sentence)
        self.usage = usage


class ScriptError(NightshiftError):
    """The training script breaks its contract."""


class RepoError(NightshiftError):
    """Git refused, or the repository is not fit for a night."""


class NoRepository(RepoError):
    """A folder is in no git repository, or in one without commits."""


class NightError(NightshiftError):
    """A tag, a lock, a journal or an option does not fit."""


class MachineError(NightshiftError):
    """Something is missing on, or used up in, this machine."""


class Starved(MachineError):
    """A process was ended several times because other programs had used up the machine's memory or disk."""


class NoIdea(NightshiftError):
    """A proposer could not propose anything this time, as when its server is down."""


class Exhausted(NightshiftError):
    """A proposer has nothing left to propose."""

"""The table of all judges: the command line, the greeting and the night read it."""

from collections.abc import Callable, Mapping

from agent.experiment import Judge
from agent.judging.judges.balanced import Balanced
from agent.judging.judges.greedy import Greedy
from agent.judging.judges.strict import Strict

# To add a judge, write its file beside this one, and name it here: how it is made, where N is the --confirm of a night,
# and how a night introduces it.
JUDGES: Mapping[str, tuple[Callable[[int], Judge], str]] = {
    "balanced": (
        lambda confirm: Balanced(),
        "the script first runs three times, to learn the noise; then further seeds where they pay",
    ),
    "greedy": (Greedy, "one lower run is enough, and much of what is kept will be luck"),
    "strict": (lambda confirm: Strict(), "hardly anything is kept by luck, at the price of many runs"),
}


def choose_judge(name: str, confirm: int = 0) -> Judge:
    """Return the judge of this name; raise KeyError for another. confirm: as `--confirm` gives it to the greedy one."""
    make, _ = JUDGES[name]
    return make(confirm)


def judge_in_words(name: str) -> str:
    """Introduce a judge by its name and a few words."""
    return f"{name}: {JUDGES[name][1]}"

"""What a person puts into a night from the command line: submissions, notes, agents, and options that do not fit."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import nothing_yet, refused
from nights import Grounds, make_repository, unigram
from samples import NIGHT

from agent.experiment import Attempt
from agent.night.lock import only_night
from agent.proposers.notes import read_notes
from agent.proposers.queue import waiting
from agent.records.journal import Journal
from agent.records.place import Place

QUICK = ("--sandbox", "off", "--judge", "greedy")
NOTE = "leave the smoothing alone"
# Mends what it is shown to have broken; else does what a note says, by copying it; else breaks the script.
AGENT = r"""
if grep -q 'it broke' TASK.md; then
    sed -i.orig "s/assert False, 'it broke'/data = prepare.load_data(verify=False)/" train_mlx.py
    sed -i.orig "s/^NOTE = .*/NOTE = 'mended'/" train_mlx.py
    printf 'mended\n\nIt runs.\n' > IDEA.md
elif [ -s notes.md ]; then
    printf '\nTOLD = "%s"\n' "$(cat notes.md)" >> train_mlx.py
    printf 'as told\n\nA note said so.\n' > IDEA.md
else
    sed -i.orig "s/^    data = .*/    assert False, 'it broke'/" train_mlx.py
    printf 'no data\n\nData are slow.\n' > IDEA.md
fi
"""


@dataclass(frozen=True)
class Night:
    grounds: Grounds
    queued: str  # what submit said
    told: str  # what note said
    said: str  # by the last run
    attempts: tuple[Attempt, ...]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Night]:
    """A night of a queue, an agent and the search, all by the command line."""
    folder = tmp_path_factory.mktemp("steering")
    grounds = Grounds(make_repository(folder / "user", unigram()))
    (folder / "agent.sh").write_text(AGENT)
    (folder / "sharper.py").write_text(unigram(SHARPNESS=0.9))
    (folder / "blunter.py").write_text(unigram(SHARPNESS=0.2))
    agent = ("--command", f"sh {shlex.quote(str(folder / 'agent.sh'))}")

    def run(experiments: int, *options: str) -> str:
        done = grounds.nightshift("run", "--tag", "t", "--experiments", str(experiments), *options, *QUICK)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        queued = grounds.nightshift("submit", str(folder / "sharper.py"), "-m", "sharper\nThe counts are large.").stdout
        run(2, "--budget-s", "0.05", "--proposer", "queue")
        run(4, "--proposer", "command", *agent)
        told = grounds.nightshift("note", *NOTE.split()).stdout
        run(5)  # whom it asks is known
        grounds.nightshift("submit", str(folder / "blunter.py"), "-m", "blunter")
        said = run(6, "--proposer", "mix")
        yield Night(grounds, queued, told, said, grounds.attempts("t"))


def test_every_attempt_is_that_of_the_source_that_was_named(mixed):
    sources = [one.proposal.source.partition(":")[0] for one in mixed.attempts]
    assert sources == ["you", "queue", "search", "command", "command", "command", "queue"]


def test_a_submission_is_tried_before_all_else_and_the_search_follows(mixed):
    assert mixed.queued == "queued as 0001.patch; a night with --proposer queue or mix tries it before all else\n"
    one = mixed.attempts[1]
    assert (one.proposal.title, one.proposal.hypothesis) == ("sharper", "The counts are large.")
    assert one.proposal.script == unigram(SHARPNESS=0.9)
    assert mixed.attempts[6].proposal.title == "blunter"
    done = waiting(mixed.grounds.root / "experiments" / "queue" / "done")
    assert [path.name for path in done] == ["0001.patch"]


def test_an_agent_repairs_what_it_broke_and_the_repair_keeps_the_ideas_name(mixed):
    broken, mended = mixed.attempts[3:5]
    assert (broken.proposal.title, broken.status) == ("no data", "crash")
    assert broken.decision.reason == "exit code 1: AssertionError: it broke"
    assert (mended.proposal.title, mended.proposal.repairs) == ("no data, repaired", 3)
    assert mended.proposal.hypothesis == broken.proposal.hypothesis == "Data are slow."
    assert mended.status != "crash"


def test_a_note_reaches_the_agent_at_its_next_proposal(mixed):
    assert mixed.told == "night t is told before its next proposal\n"
    assert mixed.attempts[5].proposal.title == "as told"
    assert mixed.attempts[5].proposal.script.endswith(f'TOLD = "- {NOTE}"\n')


def test_a_note_to_a_night_that_nothing_reads_names_what_would(grounds):
    with Journal.create(Place.of(grounds.root / "train_mlx.py").journal("t"), NIGHT):
        pass
    done = grounds.nightshift("note", "hello")
    assert done.stdout.startswith(
        "noted, but nothing reads it yet: night t has its ideas from mix: search, catalogue, queue; name a model"
    )
    assert read_notes(grounds.folder("t")) == ("hello",)


def test_status_and_the_end_of_a_run_say_what_each_source_has_brought(mixed):
    told, _, commands = mixed.grounds.nightshift("status").stdout.partition("next:\n")
    assert "nightshift results " in commands
    status = told.splitlines()
    table = {line.split()[0]: line.split()[1:] for line in status[-4:]}
    assert table["source"][:3] == ["attempts", "kept", "gain_bpb"]
    assert (table["queue"][0], table["search"][0], table["command"][0]) == ("2", "1", "3")
    # calls, failed: its three attempts, and while #3 trained it offered the very same edit, TRIES times
    assert table["command"][4:6] == ["6", "0"]
    assert [line for line in mixed.said.splitlines() if line in status] == status


def test_the_start_of_a_run_says_whom_it_asks(mixed):
    assert "night t goes on with --proposer mix (it was --proposer command)" in mixed.said
    (line,) = (line for line in mixed.said.splitlines() if line.startswith("  ideas "))
    assert line.startswith("  ideas    mix: search, catalogue, sh ")
    assert line.endswith("agent.sh, queue")


# ---- submissions and notes that are none -----------------------------------------------------------------------------


def test_a_submission_that_can_never_be_tried_is_refused_at_once(grounds, tmp_path):
    (tmp_path / "broken.py").write_text("def main(:\n")
    broken = refused(grounds.nightshift("submit", str(tmp_path / "broken.py"), "-m", "x"))
    assert re.search(r"/broken\.py line \d+ does not parse", broken)
    assert "does not exist" in refused(grounds.nightshift("submit", str(tmp_path / "nowhere.py"), "-m", "x"))
    (tmp_path / "good.py").write_text(unigram(SHARPNESS=0.9))
    assert "say what is tried and why" in refused(grounds.nightshift("submit", str(tmp_path / "good.py"), "-m", " "))
    assert not (grounds.root / "experiments" / "queue").exists()


def test_a_note_wants_a_night_and_words(grounds):
    assert "no night has run here yet; begin with: nightshift run" in nothing_yet(grounds.nightshift("note", "hello"))


@pytest.mark.parametrize(
    "words", ["status", "results", "nights", "report", "show 0", "status --follow", "stop", "note hello", "export csv"]
)
def test_a_night_that_still_prepares_its_text_is_not_told_to_begin(grounds, words):
    with only_night(grounds.root / ".git"):
        said = nothing_yet(grounds.nightshift(*words.split()))
    assert "a night has just begun here and has no name yet; give the command again in a moment" in said
    assert "begin with" not in said


# ---- options that do not fit together --------------------------------------------------------------------------------

LOCAL = "openai:toy@http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--proposer", "llm"], "--proposer llm needs --llm SPEC, as in: nightshift run --proposer llm --llm openai:"),
        (["--proposer", "command"], "--proposer command needs --command CMD, as in: nightshift run --proposer command"),
        (
            ["--proposer", "search", "--llm", LOCAL],
            "--llm is set, but --proposer search asks it nothing; use llm or mix",
        ),
        (
            ["--proposer", "queue", "--command", "true"],
            "--command is set, but --proposer queue asks it nothing; use com",
        ),
        (["--price", "1,2"], "--price says nothing without --llm SPEC"),
        (["--max-cost", "5", "--proposer", "mix"], "--max-cost says nothing without --llm"),
        (["--proposer", "llm", "--llm", LOCAL, "--max-cost", "5"], "--max-cost 5 cannot be kept without a price"),
        (["--proposer", "llm", "--llm", "gpt"], "'gpt' names no language model; write PROVIDER:MODEL[@URL], as in"),
        (["--proposer", "mix", "--command", "no-such-agent -p"], "no-such-agent, the program of --command, is not on"),
        (["--confirm", "2"], "--confirm is for --judge greedy; balanced decides by itself how often to measure"),
        (["--confirm", "2", "--judge", "strict"], "--confirm is for --judge greedy; strict decides by itself"),
    ],
)
def test_options_that_do_not_fit_together_are_refused_before_anything_is_written(grounds, options, sentence):
    assert sentence in refused(grounds.nightshift("run", *options))
    assert not (grounds.root / "experiments").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--command", "'half"], "for --command. It is no command line (No closing quotation)"),
        (["--command", " "], "for --command. It is no command line (the command line is empty)"),
        (["--price", "1"], "--price: '1' is not two prices, or three, in dollars for a million tokens"),
        (["--price", "-1,2"], "--price"),
        (["--price", "1,2,nan"], "--price"),
        (["--price", "1,2,3,4"], "--price"),
        (["--dawn", "-1"], 'Invalid value "-1" for --dawn. Must be >= 0'),
        (["--proposer", "oracle"], 'Invalid value "oracle" for --proposer. Choose from search,'),
        (["--judge", "blind"], 'Invalid value "blind" for --judge. Choose from: "balanced"'),
    ],
)
def test_values_that_are_none_are_named(grounds, options, sentence):
    done = grounds.nightshift("run", *options)
    assert done.returncode == 2
    assert sentence in done.stderr.splitlines()[-1]

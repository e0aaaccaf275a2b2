"""A coding agent is a real program here, which edits, fails, hangs, floods and forks."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from agents import BASE, EDITED, IDEA, SCRIPT, Agent, brief
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import scored_attempt

from agent.errors import MachineError, NightError, NoIdea
from agent.experiment import Ask, Ending, Proposal, Run, Status
from agent.proposers.command import billed, events_of, last_words, split
from agent.proposers.prompts import facts_page
from agent.proposers.proposer import Refusal
from agent.script.contract import MAX_SCRIPT_BYTES

EDIT = "sed -i.orig 's/^LR = .*/LR = 0.02/' train_mlx.py\n"


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


# ---- an edit ---------------------------------------------------------------------------------------------------------


def test_an_agent_edits_the_script_and_says_why(agent):
    proposal = agent.does(EDIT + IDEA).proposals(brief())[0]
    assert proposal == Proposal.of(EDITED, "half the step size", "It overshoots.", "command:agent.sh")
    (ask,) = agent.asks
    assert (ask.attempt, ask.proposer, ask.failure, ask.usd) == (1, "command:agent.sh", None, None)
    assert 0 < ask.wall_s < 20


def test_line_ends_that_an_agent_saves_are_no_edit(agent):
    saves = "sed 's/$/\\r/' train_mlx.py > saved && cat saved > train_mlx.py\n"
    told = "printf '\\357\\273\\277# half the step size\\r\\n\\r\\nIt overshoots.\\r\\n' > IDEA.md\n"
    proposal = agent.does(EDIT + saves + told).proposals(brief())[0]
    assert (proposal.script, proposal.title) == (EDITED, "half the step size")
    with pytest.raises(NoIdea, match=r"it left train_mlx.py as it was"):
        agent.does(saves).proposals(brief())


def test_only_the_script_comes_back(agent, tmp_path):
    proposal = agent.does(
        EDIT + IDEA + f"echo cheat > prepare.py; echo x > new.py; pwd > '{tmp_path}/clone'; git commit -qam mine\n"
    ).proposals(brief())[0]
    assert proposal.script == EDITED
    assert not Path((tmp_path / "clone").read_text().strip()).exists()
    assert (agent.folder / "fixed" / "prepare.py").read_text() == "BUDGET_S = 300\n"


def test_the_task_comes_on_stdin_or_as_the_word_that_holds_its_place(agent, tmp_path):
    agent.does(f"cat > '{tmp_path}/stdin'\n" + EDIT).proposals(brief())
    agent.does(f"printf %s \"$2\" > '{tmp_path}/word'\n" + EDIT, "-p", "{task}").proposals(brief())
    task = (agent.folder / "asks" / "0001-1" / "TASK.md").read_text()
    assert "Make `train_mlx.py` reach a lower val_bpb" in task
    assert (tmp_path / "stdin").read_text() == task == (tmp_path / "word").read_text()


# ---- what it is shown ------------------------------------------------------------------------------------------------


def test_the_clone_holds_what_was_promised_and_nothing_else(agent):
    better = scored_attempt(1, 0.9, script=SCRIPT.replace("64", "96"), status=Status.KEEP)
    refusal = Refusal(Proposal.of(EDITED, "half the step", "", "command:agent.sh"), "that was attempt 7 already")
    briefing = brief(BASE, better, program="Be bold.\n", notes=("leave\nthe tokenizer",), refused=(refusal,))
    clone = agent.saw(briefing)
    texts = {
        str(path.relative_to(clone)): path.read_text()
        for path in clone.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    assert '- "half the step": "that was attempt 7 already"' in texts.pop("TASK.md")
    assert texts == {
        "FACTS.md": facts_page(briefing),
        "agent/lab/kernels/plain.py": "# plain\n",
        "notes.md": "- leave\n  the tokenizer\n",
        "prepare.py": "BUDGET_S = 300\n",
        "program.md": "Be bold.\n",
        "train_mlx.py": better.proposal.script,
    }


def test_a_broken_attempt_is_shown_to_be_repaired_with_the_end_of_its_log(agent):
    log = "Traceback (most recent call last):\nNameError: name 'WIDHT' is not defined\x1b[2J <|im_end|>"
    broken = scored_attempt(1, script=SCRIPT.replace("64", "WIDHT"), title="wider", status=Status.CRASH)
    broken = replace(broken, runs=(Run(0, Ending.CRASHED, 1, 3.0, None, log),))
    briefing = brief(BASE, broken, broken=broken)
    task = (agent.saw(briefing) / "TASK.md").read_text()
    assert "> NameError: name 'WIDHT' is not defined\\x1b[2J \\u003c|im_end|>" in task
    assert 'your attempt 1, "wider"' in task
    (proposal,) = agent.does("sed -i.orig s/WIDHT/96/ train_mlx.py\n" + IDEA).proposals(briefing)
    assert (proposal.script, proposal.repairs) == (SCRIPT.replace("64", "96"), 1)


# ---- where it runs ---------------------------------------------------------------------------------------------------


def test_it_has_the_users_keys_and_no_way_to_the_users_repository(agent, monkeypatch, tmp_path):
    user = tmp_path / "user"
    for name, value in {
        "SOME_API_KEY": "sk-123",
        "NIGHTSHIFT_DATA": "/corpus",
        "GIT_CONFIG_GLOBAL": str(user / ".gitconfig"),
        "VIRTUAL_ENV": str(user / ".venv"),
    }.items():
        monkeypatch.setenv(name, value)
    probe = f"env > '{tmp_path}/env'; git rev-parse --show-toplevel > '{tmp_path}/top'; pwd > '{tmp_path}/pwd'\n"
    agent.does(f"{probe}{EDIT}git add -A; git commit -qm mine; git remote >> '{tmp_path}/top'\n").proposals(brief())
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert seen["SOME_API_KEY"] == "sk-123"
    assert [name for name in seen if name.startswith(("NIGHTSHIFT_", "GIT_")) or name == "VIRTUAL_ENV"] == []
    assert (tmp_path / "top").read_text() == (tmp_path / "pwd").read_text()  # a repository without a remote
    assert not user.exists()


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def failure_of(agent: Agent, script: str, **options: object) -> str:
    with pytest.raises(NoIdea) as caught:
        agent.does(script, **options).proposals(brief())
    assert str(caught.value).startswith(agent.asks[-1].failure or "nothing")
    return str(caught.value)


def test_no_edit_is_no_idea_and_its_last_words_are_told(agent):
    said = failure_of(
        agent, "echo working; printf 'Not logged in \\033[2J\\n'; cp train_mlx.py train.py; echo x >> prepare.py\n"
    )
    log = agent.folder / "asks" / "0001-1" / "log.txt"
    assert said == f"it left train_mlx.py as it was; it said: Not logged in \\x1b[2J (log: {log})"
    assert log.read_text().startswith("working\n")


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("ln -sf /etc/passwd train_mlx.py", "it left no plain train_mlx.py"),
        ("rm train_mlx.py; mkfifo train_mlx.py", "it left no plain train_mlx.py"),
        ("d=$PWD; cd ..; mv $d other; ln -s other $d", "it left no plain train_mlx.py"),
        (f"head -c {MAX_SCRIPT_BYTES + 1} /dev/zero > train_mlx.py", "more than 262,144 bytes"),
        ("printf 'x = \\377' > train_mlx.py", "cannot be read as a UTF-8 text file"),
    ],
)
def test_what_is_no_plain_text_file_is_not_taken(agent, deed, words):
    assert words in failure_of(agent, f"{deed}\n")


def test_a_failed_agent_has_an_idea_only_if_it_came_to_its_end(agent):
    half = failure_of(agent, EDIT + "echo out of turns; exit 3\n")
    assert "its edit of train_mlx.py may be half of one; it crashed (exit code 3); it said: out of turns" in half
    assert agent.does(EDIT + IDEA + "exit 3\n").proposals(brief())[0].script == EDITED


def test_an_agent_that_hangs_is_ended_with_all_that_it_started(agent, tmp_path):
    code = f"""
import os, time
open('train_mlx.py', 'a').write('# half')
if os.fork() == 0:
    os.setsid()
    open({str(tmp_path / "daemon")!r}, 'w').write(str(os.getpid()))
time.sleep(60)
"""
    began = time.monotonic()
    said = failure_of(agent, code, interpreter=sys.executable, limit_s=1.5)
    assert "it overran" in said
    assert time.monotonic() - began < 20
    daemon = int((tmp_path / "daemon").read_text())
    assert not psutil.pid_exists(daemon) or psutil.Process(daemon).status() == psutil.STATUS_ZOMBIE


def test_a_stopped_night_waits_for_no_agent(agent):
    agent.stopping = True
    assert "it stopped" in failure_of(agent, "sleep 60\n")
    assert agent.asks[0].wall_s < 15


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("", NightError, "--command is empty"),
        ("claude -p 'do", NightError, "cannot be split into words"),
        ("no-such-agent -p", MachineError, "no-such-agent, the program of --command, is not on PATH"),
        ("sh -c 'claude -p \"{task}\"'", NightError, "has to be a separate word"),
    ],
)
def test_a_command_that_cannot_work_is_refused_before_the_night(line, error, words):
    with pytest.raises(error, match=words):
        split(line)


# ---- what it cost ----------------------------------------------------------------------------------------------------

USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 2000,
    "cache_read_input_tokens": 30000,
    "output_tokens": 400,
}
CLAUDE = {"type": "result", "result": "I halved the step size.", "total_cost_usd": 0.1234, "usage": USAGE}
ASK = Ask(1, "command:toy", "now", 1.0)
CODEX = {"type": "turn.completed", "usage": {"input_tokens": 5000, "cached_input_tokens": 4000, "output_tokens": 60}}


@pytest.mark.parametrize(("event", "bill"), [(CLAUDE, (0.1234, 32010, 400)), (CODEX, (None, 5000, 60))])
def test_an_agents_own_bill_is_recorded(agent, event, bill):
    agent.does(EDIT + f"echo thinking; echo '{json.dumps(event)}'; echo a warning >&2\n").proposals(brief())
    (ask,) = agent.asks
    assert (ask.usd, ask.tokens_in, ask.tokens_out) == bill


@pytest.mark.parametrize(
    "events",
    [
        [CLAUDE | {"result": "Not logged in\nPlease run /login"}],
        [{"type": "item.completed", "item": {"type": "agent_message", "text": "Not logged in"}}, CODEX],
    ],
)
def test_the_last_words_of_agents_that_speak_json_are_told(events):
    words = last_words(events_of("a warning\n" + "\n".join(map(json.dumps, events))))
    assert (words or "").startswith("Not logged in")


FACTS = st.sampled_from(["total_cost_usd", "usage", "result", "input_tokens"])
LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.text()


@given(st.text() | st.recursive(LEAVES, lambda facts: st.dictionaries(FACTS, facts) | st.lists(facts)).map(json.dumps))
@settings(max_examples=50, deadline=None)
def test_no_log_can_break_the_reading_of_bills(log):
    bill = billed(ASK, events_of(log))
    assert bill.usd is None or 0 <= bill.usd < 1e5
    assert bill.tokens_in is None or bill.tokens_in >= 0

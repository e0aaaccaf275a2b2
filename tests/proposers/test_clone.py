"""A coding agent's clone holds all that helps it, and no output of a scorer."""

import pytest
from agents import BASE, EDITED, IDEA, SCRIPT, Agent, attempt, brief
from briefings import told
from nights import PROJECT

from agent.errors import NoIdea
from agent.experiment import Audit, Decision, Ending, Kind, Noise, Proposal, Run, Score, Status
from agent.proposers.briefing import Refusal


@pytest.fixture
def agent(tmp_path):
    return Agent(tmp_path)


def test_the_desk_holds_what_was_promised_and_nothing_else(agent):
    (agent.folder / "fixed" / "__pycache__").mkdir()
    history = (BASE, attempt(1, SCRIPT.replace("4", "5")), attempt(2, SCRIPT.replace("64", "96"), Status.KEEP))
    with pytest.raises(NoIdea):
        agent.does(f"git ls-files > '{agent.folder}/seen'\n").ideas(brief(*history))
    texts = "FACTS.md TASK.md history/0001.diff history/0002.diff"
    sources = "agent/lab/kernels/plain.py notes.md prepare.py program.md train_mlx.py"
    assert sorted((agent.folder / "seen").read_text().split()) == sorted([*texts.split(), *sources.split()])


def test_program_and_notes_are_those_of_now(agent):
    briefing = brief(program="Be bold.\n", notes=("no dropout", "leave\nthe tokenizer"))
    assert agent.saw("program.md", briefing) == "Be bold.\n"
    assert agent.saw("notes.md", briefing) == "- no dropout\n- leave\n  the tokenizer\n"


def test_the_facts_are_those_that_a_model_is_told(agent):
    facts = agent.saw("FACTS.md", told())
    assert "8 CPU cores, 32 GB of memory" in facts
    assert "- LR = 0.04: ↑0.08 worse #1" in facts
    assert "#2 incumbent" in facts
    assert '- "Smear tokens"' in facts
    assert "- `kernels.linear(x, weight) -> array` Return x times" in facts
    assert "nightshift try" not in agent.saw("program.md", brief(program=(PROJECT / "program.md").read_text()))


def test_the_script_is_that_of_the_best_attempt(agent):
    better = attempt(1, SCRIPT.replace("64", "96"), Status.KEEP)
    assert (
        agent.saw("train_mlx.py", brief(BASE, better, attempt(2, SCRIPT.replace("4", "5")))) == better.proposal.script
    )


def test_earlier_attempts_are_told_and_shown(agent):
    briefing = brief(BASE, attempt(1, SCRIPT.replace("WIDTH = 64", "WIDTH = 96"), Status.KEEP))
    told = agent.saw("FACTS.md", briefing)
    assert "- 1 (edits 0): keep 0.9900 (-0.0100); gain +0.0100, 90% sure" in told
    assert '"title 1"' in told
    assert {"-WIDTH = 64", "+WIDTH = 96"} <= set(agent.saw("history/0001.diff", briefing).splitlines())


def test_what_a_scorer_has_said_is_not_passed_on(agent):
    leak = "the validation text begins with: Call me Ishmael"
    failed = Run(0, Ending.FINISHED, 0, 300.0, None, "", Score(None, 1.0, f"scoring crashed: {leak}"))
    audited = Run(0, Ending.FINISHED, 0, 1.0, None, "", Score(0.9, 1.0, None, Audit(256, 1, 1.0, 0.0, 1.0, leak)))
    history = (
        BASE,
        attempt(
            1, SCRIPT.replace("4", "5"), runs=(failed,), decision=Decision(Kind.CRASHED, f"scoring crashed: {leak}")
        ),
        attempt(2, SCRIPT.replace("4", "6"), runs=(audited,), decision=Decision(Kind.FAILED_AUDIT, f"audit: {leak}")),
    )
    with pytest.raises(NoIdea):
        agent.does(f"cat .git/logs/HEAD $(git ls-files) > '{agent.folder}/seen'\n").ideas(
            brief(*history, broken=history[1])
        )[0]
    seen = (agent.folder / "seen").read_text()
    assert "Ishmael" not in seen
    assert "its scoring failed" in seen
    assert "it failed the audit" in seen


def test_a_broken_attempt_is_shown_to_be_mended_with_the_end_of_its_log(agent):
    log = "Traceback (most recent call last):\nNameError: name 'WIDHT' is not defined\x1b[2J"
    run = Run(0, Ending.CRASHED, 1, 3.0, None, log)
    broken = attempt(1, SCRIPT.replace("64", "WIDHT"), Status.CRASH, runs=(run,), decision=Decision(Kind.CRASHED, ""))
    briefing = brief(BASE, broken, broken=broken)
    task = agent.saw("TASK.md", briefing)
    assert "> NameError: name 'WIDHT' is not defined\\x1b[2J" in task
    assert 'your attempt 1, "title 1"' in task
    proposal = agent.does("sed -i.orig s/WIDHT/96/ train_mlx.py\n" + IDEA).ideas(briefing)[0]
    assert (proposal.script, proposal.repairs) == (SCRIPT.replace("64", "96"), 1)


def test_what_was_turned_down_is_shown_with_its_edit(agent):
    refusal = Refusal(Proposal(EDITED, "half the step", "", "command:agent.sh"), "that was attempt 7 already")
    briefing = brief(refused=(refusal,))
    assert '- "half the step" (`history/refused-1.diff`): "that was attempt 7 already"' in agent.saw(
        "TASK.md", briefing
    )
    assert "+LR = 0.02" in agent.saw("history/refused-1.diff", briefing)


def test_a_long_night_fits_on_the_desk(agent):
    long = "".join(f"A{k} = {k}\n" for k in range(5000))
    history = (
        BASE,
        *(attempt(n, f"{SCRIPT}{long}B = {n}\n", Status.KEEP if n < 3 else Status.DISCARD) for n in range(1, 60)),
    )
    with pytest.raises(NoIdea):
        agent.does(f"ls history > '{agent.folder}/seen'; wc -c history/0001.diff >> '{agent.folder}/seen'\n").ideas(
            brief(*history)
        )[0]
    *names, size = (agent.folder / "seen").read_text().splitlines()
    assert len(names) == 40
    assert names[:2] == ["0001.diff", "0002.diff"]
    assert names[-1] == "0059.diff"
    assert int(size.split()[0]) < 21_000


def test_the_noise_says_what_is_luck(agent):
    assert "differences below 0.004000 are luck" in agent.saw("TASK.md", brief(noise=Noise(0.002, 3, 0.004)))

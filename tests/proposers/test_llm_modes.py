"""A language model is asked for three different ideas, or for a combination, and each mode has its own account."""

from dataclasses import replace

import pytest
from asking import BASELINE, BRIEFING, SCRIPT, TWO_WAYS, WANTED, Model, attempt, edit
from llm_servers import Server, says, status

from agent.errors import NoIdea, NotYet, Unanswered
from agent.experiment import Attempt, Decision, Ending, Kind, Run, Status
from agent.proposers.author.attempts import Combinable, to_combine
from agent.proposers.author.pages import AskMode
from agent.proposers.briefing import Briefing

SMOOTHING = edit()
SHARE = edit(
    old="SHARE = 0.25  # of the training text that is counted  {0.125, 0.25, 0.5, 1.0}", new="SHARE = 0.5"
).replace("less smoothing", "more text")
SQUARED = edit(
    old="    logits = (SHARPNESS + jitter) * np.log(counts + SMOOTHING)",
    new="    logits = (SHARPNESS + jitter) * np.log(counts**2 + SMOOTHING)",
).replace("less smoothing", "squared counts")
THREE = f"IDEA 1\n{SMOOTHING}\nIDEA 2\n{SHARE}\nIDEA 3\n{SQUARED}"
TURNED = SCRIPT.replace("SMOOTHING = 1.0", "SMOOTHING = 3.0")


def near(number: int, script: str, kind: Kind = Kind.LUCK, sure: float = 0.6) -> Attempt:
    return replace(attempt(number, script), decision=Decision(kind, "", 0.001, sure))


NEAR = near(1, TURNED)
TWO_NEAR = replace(BRIEFING, history=(BASELINE, NEAR, near(2, SCRIPT.replace("SHARE = 0.25", "SHARE = 1.0"))))
COMBINED = SMOOTHING.replace("HYPOTHESIS", "COMBINES: 1, 2\nHYPOTHESIS")


def ideas(server: Server, mode: AskMode, briefing: Briefing = BRIEFING, provider: str = "openai", **more: object):
    model = Model(server, provider, **more)
    return model, model.llm.ideas(briefing, mode)


# ---- three ideas -----------------------------------------------------------------------------------------------------


@TWO_WAYS
def test_three_ideas_come_from_one_answer_in_its_order(provider, stream):
    with Server(says(THREE)) as server:
        model, found = ideas(server, AskMode.EXPLORE, BRIEFING, provider, stream=stream)
    assert [one.title for one in found] == ["less smoothing", "more text", "squared counts"]
    assert {one.source for one in found} == {"explore:toy"}
    (ask,) = model.asks
    assert (ask.source, ask.model, ask.failure) == ("explore:toy", "toy", None)
    assert "answer with three edits of train_mlx.py" in server.requests[0].text


def test_a_broken_idea_costs_neither_the_others_nor_another_question():
    with Server(says(THREE.replace("SHARE = 0.25", "SHARE = 0.3"))) as server:
        model, found = ideas(server, AskMode.EXPLORE)
    assert {one.title for one in found} == {"less smoothing", "squared counts"}
    assert len(server.requests) == 1
    assert model.asks[0].failure is None


def test_where_no_idea_is_sound_or_whole_the_answer_is_sent_back_with_what_is_wrong():
    unsound = edit(file="prepare.py") + edit(old="x = 1")
    with Server(says(unsound), says(THREE), says(SMOOTHING, finish="length"), says(THREE)) as server:
        model, found = ideas(server, AskMode.EXPLORE)
        assert len(found) == 3
        ideas(server, AskMode.EXPLORE)
    correction = server.requests[1].messages[-1]
    assert 'idea 1: the reply names the file "prepare.py"' in correction
    assert "idea 2: the SEARCH of block 1 does not stand in train_mlx.py" in correction
    assert [ask.failure is None for ask in model.asks] == [False, True]
    assert "the answer was cut off" in server.requests[3].messages[-1]


def test_of_an_answer_that_was_cut_off_the_whole_ideas_are_used():
    with Server(says(THREE, finish="length")) as server:
        _, found = ideas(server, AskMode.EXPLORE)
    assert {one.title for one in found} == {"less smoothing", "more text"}


def test_what_an_idea_of_three_broke_is_repaired_by_one_edit_under_its_own_source():
    crash = Run(0, Ending.CRASHED, 1, 3.0, None, "NameError")
    one = attempt(1, TURNED, crash, status=Status.CRASH, source="explore:toy")
    old = next(line for line in TURNED.split("\n") if line.startswith("SMOOTHING"))
    with Server(says(edit(old=old))) as server:
        _, (repair,) = ideas(server, AskMode.EXPLORE, replace(BRIEFING, history=(BASELINE, one), broken=one))
    assert (repair.source, repair.repairs) == ("explore:toy", 1)
    assert "three edits" not in server.requests[0].text


# ---- combinations ----------------------------------------------------------------------------------------------------


@TWO_WAYS
def test_a_combination_is_asked_for_by_number_and_says_what_it_stacks(provider, stream):
    with Server(says(SMOOTHING), says(COMBINED)) as server:
        model, (found,) = ideas(server, AskMode.COMBINE, TWO_NEAR, provider, stream=stream)
    assert (found.script, found.source) == (WANTED, "combine:toy")
    assert found.hypothesis == "Combines #1 and #2. Counts are large."
    told = server.requests[0].text
    assert "train_mlx.py above lacks them: 1, 2." in told
    edits = told.partition("# Edits to combine\n")[2]
    assert 'Attempt 1 (edits 0), near miss, "script 1":' in edits
    assert "\n+SMOOTHING = 3.0" in edits  # of a dial as well
    assert "\n+SHARE = 1.0" in edits
    assert "no line COMBINES:" in server.requests[1].messages[-1]
    assert [ask.source for ask in model.asks] == ["combine:toy"] * 2


@pytest.mark.parametrize("history", [(BASELINE,), (BASELINE, NEAR), (BASELINE, attempt(1, TURNED), attempt(2, WANTED))])
def test_without_two_attempts_of_which_one_is_a_near_miss_nothing_is_asked(history):
    with Server(says(COMBINED)) as server:
        model = Model(server)
        with pytest.raises(NotYet):
            model.llm.ideas(replace(BRIEFING, history=history), AskMode.COMBINE)
        assert server.requests == model.asks == []


def test_near_misses_and_keeps_can_be_combined_and_failures_cannot():
    crashed = attempt(4, TURNED, status=Status.CRASH)
    history = [BASELINE, attempt(1, TURNED), near(2, WANTED), near(3, WANTED, Kind.FAILED_AUDIT), crashed]
    assert to_combine(history) == Combinable(near=(2,), keeps=(1,))
    unsure = [*history[:2], near(2, WANTED, sure=0.0)]  # its estimate is +
    assert to_combine(unsure) == Combinable(near=(2,), keeps=(1,))
    worse = replace(history[2], decision=Decision(Kind.WORSE, "", -0.01, 0.05))
    assert to_combine([*history[:2], worse]) is None
    many = [BASELINE, *(near(number, WANTED, sure=number / 100) for number in range(1, 41))]
    parts = to_combine(many)
    assert parts is not None
    assert parts.near == tuple(range(33, 41))  # the surest


# ---- one account -----------------------------------------------------------------------------------------------------


def test_a_refused_key_is_refused_in_every_mode_and_an_unusable_answer_in_its_own_alone():
    with Server(status(401)) as server:
        model = Model(server)
        for mode in AskMode:
            with pytest.raises(Unanswered):
                model.llm.ideas(TWO_NEAR, mode)
    assert len(server.requests) == len(model.asks) == 1
    with Server(says("no")) as server, pytest.raises(NoIdea) as caught:
        Model(server).llm.ideas(BRIEFING, AskMode.EXPLORE)
    assert not isinstance(caught.value, Unanswered)

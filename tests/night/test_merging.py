"""An edit that was overtaken is made again in the best script, once, and has to win there."""

from collections.abc import Iterator

import pytest
from judged import scored_run
from nights import make_repository, scripted_context, unigram

from agent.experiment import Decision, Kind, Proposal
from agent.night import merging
from agent.night.merging import due, waits_for_parent
from agent.night.state import NightContext, State

TURNED = unigram(SMOOTHING=0.5)
LINES = unigram().replace("time.sleep(0.02)", "time.sleep(0.03)")


@pytest.fixture(scope="module")
def opened(tmp_path_factory, tiny_data) -> Iterator[NightContext]:
    root = make_repository(tmp_path_factory.mktemp("merging") / "user", unigram())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        with scripted_context(root, "t", []) as context:
            yield context


@pytest.fixture
def night(opened) -> Iterator[NightContext]:
    """A night of which nothing is known but its facts."""
    yield opened
    for table in ("decisions", "runs", "attempts"):
        opened.journal._db.execute(f"DELETE FROM {table}")


def enter(
    context: NightContext, kind: Kind, script: str, parent: int | None = 0, sure: float = 0.9, **more: object
) -> State:
    """An attempt that is decided, measured and settled; in a state that is read from the journal."""
    state = context.state()
    title = str(more.pop("title", "an edit"))
    number = state.enter(parent, Proposal.of(script, title, "It learns more.", "search", **more)).number  # type: ignore[arg-type]
    journal = context.journal
    journal.end_run(journal.start_run(number, 0), scored_run(0, 1.5 - 0.01 * number))
    journal.record_decision(number, Decision(kind, "so it is", 0.01, sure))
    journal.settle(number)
    return context.state()


def merge(context: NightContext, state: State, number: int) -> None:
    """Carry out what is to be done with an overtaken attempt."""
    merged = merging.merge(state, number)
    if isinstance(merged, Decision):
        decide(context, state, number, merged)
    else:
        state.enter(*merged)


def decide(context: NightContext, state: State, number: int, decision: Decision) -> None:
    context.journal.record_decision(number, decision)
    state.read(number)


def overtaken(context: NightContext, best: str, edit: str) -> State:
    """#2 was made from #0, and #1 has become the best script meanwhile."""
    enter(context, Kind.BASELINE, unigram(), None)
    enter(context, Kind.KEPT, best)
    return enter(context, Kind.OVERTAKEN, edit, title="a finer count")


def test_what_was_overtaken_is_due_until_another_attempt_merges_it(night):
    state = overtaken(night, unigram(SHARPNESS=0.9), TURNED)
    assert due(state) == 2
    merge(night, state, 2)
    assert due(state) is None
    assert due(night.state()) is None  # a killed night finds the same
    made = state.attempts[3]
    assert (made.parent, made.decision, made.proposal.merges) == (1, None, 2)
    assert made.proposal.script == unigram(SHARPNESS=0.9, SMOOTHING=0.5)
    assert (made.proposal.title, made.proposal.proposer) == ("a finer count, merged", "search")
    assert made.proposal.hypothesis == "Makes the edit of #2, better than #0, in #1.\n\nIt learns more."


def test_of_several_each_is_merged_onto_the_one_before_which_is_being_measured(night):
    overtaken(night, unigram(SHARPNESS=0.9), TURNED)
    state = enter(night, Kind.OVERTAKEN, LINES, sure=0.99)
    assert [due(state), state.proposals] == [3, 3]  # the surest
    merge(night, state, 3)
    assert [due(state), state.proposals] == [2, 4]
    merge(night, state, 2)
    assert [due(state), state.proposals] == [None, 5]
    first, second = state.attempts[4:]
    assert (first.parent, second.parent) == (1, 4)
    assert second.proposal.script == first.proposal.script.replace("SMOOTHING = 1.0", "SMOOTHING = 0.5")
    assert not waits_for_parent(state, first)
    assert waits_for_parent(state, second)


def test_no_edit_is_merged_onto_one_that_is_not_sure_of_its_gain(night):
    enter(night, Kind.BASELINE, unigram(), None)
    enter(night, Kind.KEPT, unigram(SHARPNESS=0.9))
    enter(night, Kind.OVERTAKEN, TURNED, sure=0.5)
    state = enter(night, Kind.OVERTAKEN, LINES, sure=0.4)
    merge(night, state, 2)
    merge(night, state, 3)
    assert [attempt.parent for attempt in state.attempts[4:]] == [1, 1]


def test_what_stood_on_a_script_that_does_not_count_is_merged_once_more(night):
    overtaken(night, unigram(SHARPNESS=0.9), TURNED)
    state = enter(night, Kind.OVERTAKEN, LINES)
    merge(night, state, 2)
    merge(night, state, 3)
    decide(night, state, 4, Decision(Kind.CRASHED, "exit code 1"))
    decide(night, state, 5, Decision(Kind.ORPHANED, "made from #4, whose scores do not count any more"))
    assert due(state) == due(night.state()) == 3
    merge(night, state, 3)
    assert (state.attempts[6].parent, state.attempts[6].proposal.merges) == (1, 3)


def test_a_dial_that_both_have_turned_is_a_conflict_and_the_edit_is_dropped(night):
    state = overtaken(night, TURNED, unigram(SMOOTHING=0.25))
    merge(night, state, 2)
    assert len(state.attempts) == 3
    decision = state.attempts[2].decision
    assert decision is not None
    assert decision.kind is Kind.STALE
    assert decision.reason == (
        "better than its parent, but it conflicts with what was kept since #0, or adds nothing to it"
    )

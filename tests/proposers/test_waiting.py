"""The other ideas of an answer wait for their turn: durable, under their own source, and before any further call."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from asking import BRIEFING, SCRIPT, attempt
from judged import decided

from agent.errors import NoIdea
from agent.experiment import Attempt, Proposal, Status
from agent.proposers.briefing import Briefing
from agent.proposers.checked import Claims
from agent.proposers.waiting import FILE, FurtherFirst, Waiting
from agent.script.dials import set_dials, values_of

SOURCE = "explore:toy"


def idea(title: str, **dials: object) -> Proposal:
    return Proposal.of(set_dials(SCRIPT, "cpu", dials), title, f"why {title}", SOURCE)


SMOOTH, SHARE, SHARP = idea("smooth", SMOOTHING=0.5), idea("share", SHARE=0.5), idea("sharp", SHARPNESS=0.9)


class Asked:
    """Answers with these ideas, each list once."""

    def __init__(self, *answers: Sequence[Proposal]) -> None:
        self.answers, self.briefings = answers, []

    def __call__(self, briefing: Briefing) -> Sequence[Proposal]:
        self.briefings.append(briefing)
        return self.answers[len(self.briefings) - 1]


def source(folder: Path, asked: Asked, say: Callable[[str], None] = lambda sentence: None) -> FurtherFirst:
    return FurtherFirst(asked, SOURCE, Waiting(folder, Claims(), say))


def entered(briefing: Briefing, proposal: Proposal, status: Status | None = Status.DISCARD) -> Briefing:
    """The night after this proposal became its next attempt; None: it is in flight."""
    one = replace(attempt(len(briefing.history), ""), proposal=proposal, parent=briefing.parent.number)
    one = replace(one, decision=decided(status) if status is not None else None)
    history = (*briefing.history, one)
    return replace(briefing, history=history, parent=one if status is Status.KEEP else briefing.parent)


def test_three_ideas_are_three_attempts_of_one_question(tmp_path):
    asked, briefing, titles = Asked([SMOOTH, SHARE, SHARP], [idea("more", SMOOTHING=9.0)]), BRIEFING, []
    for _ in range(4):
        proposal = source(tmp_path, asked).ideas(briefing)[0]  # a fresh one each time, as after a kill
        assert (proposal.source, proposal.hypothesis) == (SOURCE, f"why {proposal.title}")
        titles.append(proposal.title)
        briefing = entered(briefing, proposal)
        assert len(asked.briefings) == (2 if titles[3:] else 1)
    assert titles == ["smooth", "share", "sharp", "more"]
    assert not (tmp_path / FILE).exists()


def test_an_idea_that_never_became_an_attempt_is_proposed_again(tmp_path):
    asked = Asked([SMOOTH, SHARE])
    assert [source(tmp_path, asked).ideas(BRIEFING)[0].title for _ in range(2)] == ["smooth", "smooth"]
    in_flight = entered(BRIEFING, SMOOTH, status=None)
    assert source(tmp_path, asked).ideas(in_flight)[0].title == "share"


def test_what_waits_is_carried_over_to_the_best_script(tmp_path):
    asked = Asked([SMOOTH, SHARE, SHARP])
    source(tmp_path, asked).ideas(BRIEFING)[0]
    kept = entered(BRIEFING, SMOOTH, Status.KEEP)
    proposal = source(tmp_path, asked).ideas(kept)[0]
    values = values_of(proposal.script, "cpu")
    assert (values["SMOOTHING"], values["SHARE"]) == (0.5, 0.5)
    assert len(asked.briefings) == 1


def test_what_conflicts_or_was_tried_is_dropped_with_a_reason(tmp_path):
    said: list[str] = []
    asked = Asked([SMOOTH, idea("smoother", SMOOTHING=0.1), SHARE, SHARP])
    source(tmp_path, asked).ideas(BRIEFING)[0]
    kept = entered(BRIEFING, SMOOTH, Status.KEEP)
    both = set_dials(SMOOTH.script, "cpu", {"SHARE": 0.5})
    tried = entered(kept, replace(SHARE, script=both, title="by another", source="search"))
    assert source(tmp_path, asked, said.append).ideas(tried)[0].title == "sharp"
    smoother, share = said
    assert smoother.startswith("an idea of explore:toy is dropped, 'smoother': it conflicts with what was kept since")
    assert share == (
        "an idea of explore:toy is dropped, 'share': explore:toy proposed the script of attempt 2 again; "
        "it has to be a new one"
    )
    source(tmp_path, asked, said.append).ideas(tried)[0]
    assert len(said) == 2
    assert len(asked.briefings) == 1


def test_an_answer_of_known_ideas_alone_is_no_idea(tmp_path):
    known = entered(entered(BRIEFING, replace(SMOOTH, source="you")), replace(SHARE, source="you"))
    asked = Asked([SMOOTH, SHARE])
    with pytest.raises(NoIdea, match="no idea of the answer can be tried"):
        source(tmp_path, asked).ideas(known)[0]
    assert not (tmp_path / FILE).exists()


def test_a_repair_of_its_own_is_asked_for_before_what_waits(tmp_path):
    asked = Asked([SMOOTH, SHARE], [idea("smooth, repaired", SMOOTHING=0.6)])
    source(tmp_path, asked).ideas(BRIEFING)[0]
    night = entered(BRIEFING, SMOOTH, Status.CRASH)
    broken: Attempt = night.history[-1]
    assert source(tmp_path, asked).ideas(replace(night, broken=broken))[0].title == "smooth, repaired"
    others = replace(broken, proposal=replace(broken.proposal, source="llm:toy"))
    assert source(tmp_path, asked).ideas(replace(night, broken=others))[0].title == "share"


@pytest.mark.parametrize("content", ["", "[", "{}", '["x", null, {"proposal": 1}]', '[{"proposal": {}, "parent": 0}]'])
def test_a_file_that_it_did_not_write_holds_no_ideas(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    assert Waiting(tmp_path, Claims(), print).next(BRIEFING) is None


def test_of_eight_who_ask_at_once_each_gets_another_of_the_ideas_that_wait(tmp_path):
    claims = Claims()
    Waiting(tmp_path, claims).keep([idea(f"to {value}", SMOOTHING=value) for value in range(2, 10)], BRIEFING)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: Waiting(tmp_path, claims).next(BRIEFING), range(8)))
    assert sorted(one.title for one in found if one) == [f"to {value}" for value in range(2, 10)]

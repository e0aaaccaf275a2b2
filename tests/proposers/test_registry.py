"""The table of sources: whatever stands in it can be chosen, is explained, and takes part in nights."""

from dataclasses import replace

import pytest
from asking import BASELINE, BRIEFING, attempt, edit
from llm_servers import KEY, Handler, Request, Server, says
from nights import Grounds, unigram
from samples import NIGHT

from agent.errors import NightError, NoIdea
from agent.experiment import Decision, Kind, Proposal, Terms
from agent.proposers import registry
from agent.proposers.briefing import Briefing
from agent.proposers.outbox import Outbox
from agent.proposers.registry import (
    COSTLY,
    SOURCES,
    Need,
    Source,
    Surroundings,
    check_sources,
    choices,
    help_lines,
    patience_s,
    proposer_of,
)
from agent.records.place import Place

BETTER = unigram(SHARPNESS=0.9)
QUICK = ("--budget-s", "0.05", "--judge", "greedy", "--sandbox", "off", "--tag", "t")

pytestmark = pytest.mark.usefixtures("own_cache")


class Toy:
    """Proposes one script, once."""

    def __init__(self, around: Surroundings) -> None:
        self._say = around.outbox.said

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        if len(briefing.history) > 1:
            raise NoIdea("the toy had one idea")
        self._say("the toy plays")
        return [Proposal(BETTER, "sharper", "It is nearer to one.", "toy")]


TOY = Source("toy", "one idea of a toy", Toy, patience_s=lambda terms: 7.0)


@pytest.fixture
def with_toy(monkeypatch):
    monkeypatch.setattr(registry, "SOURCES", (*SOURCES, TOY))


@pytest.mark.usefixtures("with_toy")
def test_a_source_of_the_table_is_a_choice_and_is_explained():
    assert choices() == ("search", "catalogue", "llm", "command", "queue", "toy", "mix")
    assert "toy: one idea of a toy; mix: all that is set up" in help_lines()


@pytest.mark.usefixtures("with_toy")
def test_it_proposes_in_a_night_and_the_search_steps_in_for_it(grounds: Grounds):
    done = grounds.nightshift("run", "--proposer", "toy", "--experiments", "2", *QUICK)
    assert done.returncode == 0, done.stderr
    assert [one.proposal.source for one in grounds.attempts("t")] == ["you", "toy", "search"]
    assert "  ideas    toy\n" in done.stdout
    assert "the toy plays\n" in done.stdout
    assert "toy: the toy had one idea · ideas now come from search" in done.stdout


@pytest.mark.usefixtures("with_toy")
def test_it_takes_part_in_a_mix():
    assert patience_s(Terms(proposer="mix")) == patience_s(Terms(proposer="toy")) == 7.0


def test_what_a_source_needs_is_asked_for_by_its_entry(monkeypatch):
    needy = replace(TOY, need=Need("llm", "SPEC", "a:b", "a toy", details=("max_cost",)))
    monkeypatch.setattr(registry, "SOURCES", (needy,))
    with pytest.raises(NightError, match=r"--proposer toy needs --llm SPEC, as in: .* run --proposer toy --llm a:b"):
        check_sources(Terms(proposer="toy"), {})
    with pytest.raises(NightError, match="--max-cost is about a toy; name it with --llm SPEC"):
        check_sources(Terms(proposer="mix", max_cost=1.0), {"max_cost": 1.0})
    with pytest.raises(NightError, match="--llm is set, but --proposer search asks it nothing; use toy or mix"):
        check_sources(Terms(proposer="search", llm="a:b"), {"llm": "a:b"})


# ---- modes of a model ------------------------------------------------------------------------------------------------

MODES = {"explore:toy", "combine:toy", "llm:toy"}


def edited(title: str, new: str, said: str = "") -> str:
    return edit(f"{new}  # by a model").replace("TITLE: less smoothing\n", f"TITLE: {title}\n{said}")


def answers(request: Request, handler: Handler) -> None:
    two = edited("a", "SMOOTHING = 0.1") + edited("b", "SMOOTHING = 0.2")
    one = edited("one", f"SMOOTHING = {len(handler.server.owner.requests)}", "COMBINES: 1, 2\n")
    says(two if "answer with three edits" in request.text else one)(request, handler)


def test_every_mode_of_a_model_is_asked_by_the_same_draws_and_what_waits_comes_first(grounds: Grounds, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    luck = Decision(Kind.LUCK, "", 0.001, 0.6)
    near = [
        replace(attempt(number, unigram(SHARE=number), source=source), decision=luck)
        for number, source in ((1, "llm:toy"), (2, "explore:toy"))
    ]
    briefing, found = replace(BRIEFING, history=(BASELINE, *near)), []
    with Server(answers) as server:
        for seed in range(40):
            place, night = Place.of(grounds.root / "train_mlx.py"), replace(NIGHT, tag=f"t{seed}")
            place.folder(night.tag).mkdir(parents=True)
            terms = Terms(proposer="llm", llm=server.spec("openai"))
            proposer = proposer_of(Surroundings(place, night, terms, Outbox(lambda: False)))
            found.append(proposer.ideas(briefing)[0])
            if found[-1].source == "explore:toy":
                entered = replace(attempt(3, ""), proposal=found[-1], parent=0, decision=None)
                asked = len(server.requests)
                assert proposer.ideas(replace(briefing, history=(*briefing.history, entered)))[0].title == "b"
                assert len(server.requests) == asked
            if {one.source for one in found} == MODES:
                break
    assert {one.source for one in found} == MODES
    assert next(one for one in found if one.source == "combine:toy").hypothesis.startswith("Combines #1 and #2.")


def test_what_any_mode_of_a_model_broke_goes_back_to_it():
    assert {"llm", "explore", "combine", "command"} == COSTLY

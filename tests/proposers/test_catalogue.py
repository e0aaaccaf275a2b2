"""Known ideas in a night: which comes first, which gets a second try, and what is said of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judged import scored_run
from queued import write_idea
from samples import NIGHT

from agent.errors import Exhausted
from agent.experiment import Attempt, Decision, Kind, Noise, Proposal
from agent.proposers.catalogue import files
from agent.proposers.catalogue.catalogue import Catalogue
from agent.proposers.catalogue.evidence import GROUP_SHARE, Measurement, estimates
from agent.proposers.proposer import Briefing
from agent.records.record import Record
from agent.script.dials import outline_of

BASE = (
    "import math\n\nLR = 0.1  # step size  [0.01, 1.0] log\n\n\ndef main():\n    return 1\n\n\ndef load_model(): ...\n"
)
WIDER = BASE.replace("return 1", "return 1 + 1")
NEWS = BASE.replace("    return 1\n", "    x = 1\n    return 1\n")
SIGMA_BPB = 0.001


# ---- which idea comes next -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of ideas, beside which none are shipped."""
    monkeypatch.setattr(files, "PACKAGE", tmp_path / "nowhere")
    write_idea(tmp_path / "ideas", "wider", BASE, WIDER, Title="Widen it", Gain="cpu 0.5")
    write_idea(tmp_path / "ideas", "news", BASE, NEWS, Title="Add news", Gain="cpu 1.0")
    return tmp_path


def catalogue(folder: Path) -> Catalogue:
    return Catalogue(folder / "train_mlx.py")


def attempt(number: int, bpb: float | None, proposer: str, script: str, decision: Decision, parent: int = 0) -> Attempt:
    runs = () if bpb is None else (scored_run(0, bpb),)
    proposal = Proposal.of(script, f"attempt {number}", "", proposer)
    outline = outline_of(proposal.script, "cpu")
    return Attempt(number, parent if number else None, proposal, "", "c", runs, (decision,), True, outline=outline)


START = attempt(0, 1.0, "you", BASE, Decision(Kind.BASELINE, ""))


def brief(*history: Attempt, best: int = 0, past: Sequence[Record] = ()) -> Briefing:
    return Briefing(NIGHT, history, history[best], Noise(SIGMA_BPB, 3, 0.003), past=past)


def tried(number: int, name: str, kind: Kind, gain: float | None = None, sure: float | None = None) -> Attempt:
    bpb = None if kind is Kind.CRASHED else 1.0 - (gain or 0.0)
    return attempt(number, bpb, f"catalogue: {name}", f"{BASE}N = {number}\n", Decision(kind, "so it is", gain, sure))


def test_the_idea_that_promises_most_comes_first_and_says_what_is_known_of_it(folder):
    proposal = catalogue(folder).proposals(brief(START))[0]
    assert (proposal.script, proposal.title, proposal.proposer) == (NEWS, "Add news", "catalogue: news")
    for words in ("It may help.", "Source: a paper", "Reported: 1 % less", "with 1 % by the idea's file"):
        assert words in proposal.hypothesis


def on_another(*others: Attempt) -> Briefing:
    """The search's edit was kept after the others, so the best script is another script."""
    number = len(others) + 1
    kept = attempt(number, 0.99, "search", BASE.replace("0.1", "0.2"), Decision(Kind.KEPT, "", 0.01, 0.99))
    return brief(START, *others, kept, best=number)


def test_a_near_miss_gets_a_second_try_on_another_best_script_and_no_third(folder):
    near = tried(1, "news", Kind.LUCK, 0.001, 0.5)
    again = catalogue(folder).proposals(on_another(tried(2, "wider", Kind.WORSE, -0.01), near))[0]
    assert again.proposer == "catalogue: news"
    assert again.script == NEWS.replace("0.1", "0.2")
    assert "Attempt 1 tried it on another script and came near." in again.hypothesis
    with pytest.raises(Exhausted):
        catalogue(folder).proposals(on_another(tried(1, "wider", Kind.WORSE, -0.01), near, replace(near, number=3)))


# ---- what other nights measured --------------------------------------------------------------------------------------


def night_before(kind: Kind, gain: float | None) -> Record:
    """A night that tried `news` once."""
    return Record(replace(NIGHT, tag="before"), (START, tried(1, "news", kind, gain)), noise=Noise(SIGMA_BPB, 3, 0.003))


def test_what_earlier_nights_found_to_be_worse_comes_later_or_never_and_the_proposal_says_so(folder):
    worse = [night_before(Kind.WORSE, -0.001)]
    assert catalogue(folder).proposals(brief(START, past=worse))[0].proposer == "catalogue: wider"
    only = tried(1, "wider", Kind.WORSE, -0.01, 0.01)
    later = catalogue(folder).proposals(brief(START, only, past=worse))[0]
    assert later.proposer == "catalogue: news"  # an earlier night is no reason not to try it in this one
    assert "Gains in earlier nights: -0.10 % ± 0.14 in before." in later.hypothesis
    with pytest.raises(Exhausted, match="unlikely to help"):
        catalogue(folder).proposals(brief(START, only, past=[night_before(Kind.WORSE, -0.01)] * 3))
    write_idea(folder / "ideas", "wider", BASE, WIDER, Title="Widen it", Gain="cpu 0.9")
    crashed = [night_before(Kind.CRASHED, None)]
    assert catalogue(folder).proposals(brief(START, past=crashed))[0].proposer == "catalogue: wider"


def test_a_measured_idea_tells_of_its_group_as_the_joint_normal_distribution_says():
    promised, groups = {"a": 1.0, "b": 0.5, "c": 0.5, "d": -0.4}, {"a": "x", "b": "x", "c": "y", "d": "x"}
    gains = [("a", -1.0, 0.4, 1.0), ("a", -0.6, 0.3, 0.5), ("d", 0.1, 0.2, 1.0), ("c", 0.7, 0.5, 0.8)]
    measured = [Measurement(slug, "t", at, gain, error, alike) for at, (slug, gain, error, alike) in enumerate(gains)]
    found = estimates(promised, groups, measured)

    names = list(promised)
    sizes = np.array([1.0, 0.5, 0.5, 0.2])  # the promise, half of an expected loss
    kin = np.array([[1.0 if i == j else GROUP_SHARE * (groups[i] == groups[j]) for j in names] for i in names])
    prior = kin * np.outer(sizes, sizes)
    seen = np.array([[name == slug for name in names] for slug, *_ in gains], float)
    _, values, errors, alike = (np.array(column) for column in zip(*gains, strict=True))
    noise = errors**2 + (seen @ sizes) ** 2 * (1 / alike - 1)
    mean = share_of_promises(promised, values, sizes, seen, noise) * np.array(list(promised.values()))
    pull = prior @ seen.T @ np.linalg.inv(seen @ prior @ seen.T + np.diag(noise))
    expected = mean + pull @ (values - seen @ mean)
    spread = np.sqrt(np.diag(prior - pull @ seen @ prior))
    assert [found[name].mean_percent for name in names] == pytest.approx(expected.tolist())
    assert [found[name].spread_percent for name in names] == pytest.approx(spread.tolist())
    assert found["b"].mean_percent < found["c"].mean_percent  # of its group, "a" brought a loss


def share_of_promises(promised, values, sizes, seen, noise) -> float:
    """The share of a promise that arrives: a regression on what was promised, with the prior of 0.6 ± 0.5."""
    weight, promise = 1 / ((seen @ sizes) ** 2 + noise), seen @ np.array(list(promised.values()))
    return max(0.0, (0.6 / 0.25 + (weight * promise * values).sum()) / (1 / 0.25 + (weight * promise**2).sum()))


# ---- what cannot be used ---------------------------------------------------------------------------------------------


def test_what_was_tried_or_conflicts_is_skipped_and_what_comes_in_during_the_night_is_tried(folder):
    proposer = catalogue(folder)
    near = replace(tried(1, "news", Kind.LUCK, 0.001, 0.6), proposal=Proposal.of(NEWS, "", "", "catalogue: news"))
    assert proposer.proposals(brief(START, near))[0].proposer == "catalogue: wider"
    other = Proposal.of(BASE.replace("    return 1\n", "    y = 2\n    return 0\n"), "", "", "you")
    with pytest.raises(Exhausted, match="all 2 known ideas were tried, are unlikely to help, or do not apply"):
        proposer.proposals(brief(replace(START, proposal=other)))
    write_idea(folder / "ideas", "late", BASE, BASE.replace("...", "return None"), Gain="cpu 9")
    assert proposer.proposals(brief(START, near))[0].proposer == "catalogue: late"

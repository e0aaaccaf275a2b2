"""`nightshift ideas`: a user sees which ideas there are, and what they would do to the script."""

import json

import pytest
from nights import Grounds, unigram
from queued import write_idea

from agent.proposers.catalogue import files

COUNTED = "    logits = (SHARPNESS + jitter) * np.log(counts + SMOOTHING)\n"
BOOSTED = unigram().replace("SMOOTHING =", "BOOST = 1.5  # of the logits  [1.0, 2.0]\nSMOOTHING =")
BOOSTED = BOOSTED.replace(COUNTED, f"{COUNTED}    logits = BOOST * logits\n")


@pytest.fixture
def with_ideas(grounds: Grounds, monkeypatch: pytest.MonkeyPatch) -> Grounds:
    """A repository with two ideas of its own and no others: one for the script in it, one for some other script."""
    monkeypatch.setattr(files, "PACKAGE", grounds.root / "nowhere")
    folder = grounds.root / "ideas"
    write_idea(folder, "boost", unigram(), BOOSTED, Title="Multiply the logits by a boost", Group="architecture")
    write_idea(folder, "elsewhere", "x = 1\ny = 2\n", "x = 1\ny = 3\n", Title="Edit something else", Gain="cpu 9")
    return grounds


def test_without_a_night_the_ideas_are_those_for_the_script_as_it_stands(with_ideas):
    answer = with_ideas.nightshift("ideas")
    assert answer.returncode == 0, answer.stderr
    header, boost, elsewhere, legend, last = answer.stdout.splitlines()
    assert header.split()[:2] == ["name", "title"]
    assert boost.split()[0] == "boost"
    assert " yes " in boost
    assert elsewhere.split()[0] == "elsewhere"
    assert " no " in elsewhere
    assert legend.startswith("expected gain %: of val_bpb, by one try ")
    assert last == "2 ideas, 1 apply to train_mlx.py; one in full: nightshift ideas NAME"


def test_programs_get_all_of_it(with_ideas):
    (with_ideas.root / "ideas" / "broken.patch").write_text("Title: nothing\n")
    answer = with_ideas.nightshift("ideas", "--json")
    facts = json.loads(answer.stdout)
    assert facts["applies_to"] == "train_mlx.py"
    boost, elsewhere = facts["ideas"]
    assert (boost["idea"]["slug"], boost["state"], boost["measured"]) == ("boost", "yes", [])
    assert elsewhere["state"] == "no"
    (fault,) = facts["faults"]
    assert "broken.patch holds no patch" in fault
    assert fault in answer.stderr

"""A night with its default options, without any key: known ideas and dials are tried, kept, and built upon."""

import json

import pytest
from json_page import faults
from nights import Grounds, make_repository, unigram
from queued import write_idea

from agent.experiment import Status
from agent.proposers.catalogue import files
from agent.script.dials import searched

EXPERIMENTS = 4
QUICK = ("--budget-s", "0.05", "--judge", "greedy", "--sandbox", "off", "--seed", "3")  # draws the catalogue first
COUNTED = "    logits = (SHARPNESS + jitter) * np.log(counts + SMOOTHING)\n"
DIAL = "SMOOTHING ="


def with_lines(*lines: str, dial: str = "") -> str:
    """The script with lines after its logits, and a dial before one of its own."""
    edited = unigram().replace(DIAL, dial + DIAL, 1)
    return edited.replace(COUNTED, COUNTED + "".join(f"    {line}\n" for line in lines))


IDEAS = {
    "boost": (with_lines("logits = BOOST * logits", dial="BOOST = 1.4  # of the logits  [1.0, 2.0]\n"), 3.0),
    "crash": (with_lines("raise SystemExit('no such kernel here')"), 2.0),
    "halve": (with_lines("logits = logits / 2"), 1.0),
}


@pytest.mark.slow
def test_a_night_without_a_key_tries_ideas_and_builds_on_them_and_the_next_one_knows(tmp_path, own_cache, monkeypatch):
    grounds = Grounds(make_repository(tmp_path / "user", unigram()))
    monkeypatch.setattr(files, "PACKAGE", tmp_path / "nowhere")  # the shipped ideas are about another script
    for name, (edited, gain) in IDEAS.items():
        write_idea(grounds.root / "ideas", name, unigram(), edited, Title=f"Try to {name}", Gain=f"cpu {gain}")
    done = grounds.nightshift("run", "--tag", "t", "--experiments", str(EXPERIMENTS), *QUICK)
    assert done.returncode == 0, done.stderr
    attempts = grounds.attempts("t")
    tried = {attempt.proposal.proposer: attempt for attempt in attempts}
    assert {proposer.partition(":")[0] for proposer in tried} == {"you", "catalogue", "search"}
    boost = tried["catalogue: boost"]
    assert (boost.status, tried["catalogue: crash"].status) == (Status.KEEP, Status.CRASH)
    later = attempts[boost.number + 1 :]
    assert later
    assert all("BOOST" in attempt.proposal.script for attempt in later)
    assert "BOOST" in {dial.name for dial in searched(boost.proposal.script, "cpu")}  # the search's from now on

    done = grounds.nightshift("run", "--tag", "u", "--proposer", "catalogue", "--experiments", "1", *QUICK)
    assert done.returncode == 0, done.stderr
    first = grounds.attempts("u")[1]
    assert first.proposal.proposer == "catalogue: boost"
    assert "Gains in earlier nights: +" in first.proposal.hypothesis
    facts = json.loads(grounds.nightshift("ideas", "--json").stdout)
    assert faults("ideas", facts) == []
    by_slug = {prospect["idea"]["slug"]: prospect for prospect in facts["ideas"]}
    assert [measured["tag"] for measured in by_slug["boost"]["measured"]] == ["t", "u"]
    assert by_slug["crash"]["measured"][0]["failed"]

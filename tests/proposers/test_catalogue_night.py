"""A night with its default options, without any key: known ideas and dials are tried, kept, and built upon."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from json_page import faults
from nights import Grounds, make_repository, unigram
from queued import write_idea

from agent.experiment import Attempt, Status
from agent.proposers.catalogue import idea
from agent.script.dials import searched

EXPERIMENTS = 8
QUICK = (
    "--budget-s",
    "0.05",
    "--judge",
    "greedy",
    "--sandbox",
    "off",
    "--seed",
    "3",
)  # which draws the catalogue first
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
    "elsewhere": (unigram().replace("time.sleep(0.02)", "time.sleep(0.01)"), 0.1),
}


@dataclass(frozen=True)
class Morning:
    grounds: Grounds
    said: str
    attempts: tuple[Attempt, ...]

    def of(self, name: str) -> list[Attempt]:
        return [one for one in self.attempts if one.proposal.source == f"catalogue: {name}"]

    def ideas(self) -> dict[str, dict]:
        told = self.grounds.nightshift("ideas", "--json")
        facts = json.loads(told.stdout)
        assert faults("ideas", facts) == []
        return {one["name"]: one for one in facts["ideas"]}


@pytest.fixture(scope="module")
def morning(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Morning]:
    root = make_repository(tmp_path_factory.mktemp("catalogue") / "user", unigram())
    grounds = Grounds(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        patch.setattr(idea, "PACKAGE", root / "nowhere")  # the shipped ideas are about another script
        for name, (edited, gain) in IDEAS.items():
            write_idea(root / "ideas", name, unigram(), edited, Title=f"Try to {name}", Gain=f"cpu {gain}")
        done = grounds.nightshift("run", "--tag", "t", "--experiments", str(EXPERIMENTS), *QUICK)
        assert done.returncode == 0, done.stderr
        yield Morning(grounds, done.stdout, grounds.attempts("t"))


def test_an_idea_is_kept_and_what_follows_is_made_of_it(morning):
    (boost,) = morning.of("boost")
    assert boost.status is Status.KEEP
    assert boost.proposal.title == "Try to boost"
    later = [one for one in morning.attempts if one.number > boost.number]
    assert later
    assert all("BOOST" in one.proposal.script for one in later)
    assert "BOOST" in {dial.name for dial in searched(boost.proposal.script, "cpu")}  # the search's from now on


def test_the_report_and_the_list_of_ideas_say_what_became_of_them(morning):
    assert [one.status for one in morning.of("crash")] == [Status.CRASH]
    assert {"catalogue", "search"} <= {line.split()[0] for line in morning.said.splitlines() if line}
    known = morning.ideas()
    assert known["boost"]["gain_percent"] > 1
    assert known["boost"]["sure"] > known["halve"]["sure"]
    assert (known["crash"]["tried"][0]["failed"], known["crash"]["may_be_tried"]) == (True, False)


def test_a_second_night_knows_what_the_first_one_found(morning):
    done = morning.grounds.nightshift("run", "--tag", "u", "--proposer", "catalogue", "--experiments", "1", *QUICK)
    assert done.returncode == 0, done.stderr
    first = morning.grounds.attempts("u")[1]
    assert first.proposal.source == "catalogue: boost"
    assert "Earlier nights: +" in first.proposal.hypothesis
    assert morning.ideas()["boost"]["nights"] == ["t", "u"]

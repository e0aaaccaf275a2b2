"""The likeness of edits, on the training script and on the known ideas that edit it."""

import pytest
from nights import PROJECT, unigram
from sources import attempt

from agent.proposers.llm.likeness import least_alike_first, likeness, traits, tried_traits
from agent.script.patch import apply_patch

SCRIPT = (PROJECT / "train_mlx.py").read_text()
TOY = unigram()


def of(name: str) -> frozenset[str]:
    """The traits of a known idea."""
    text = (PROJECT / "agent" / "ideas" / f"{name}.patch").read_text()
    return traits(SCRIPT, apply_patch(text[text.index("--- ") :], "train_mlx.py", [(0, SCRIPT)]))


def turned(old: str, new: str) -> frozenset[str]:
    assert old in TOY
    return traits(TOY, TOY.replace(old, new))


@pytest.mark.parametrize(
    ("idea", "kin", "stranger"),
    [
        ("trigram-embedding", "signed-bigram", "slow-momentum"),
        ("engram", "ngram-tables", "muon-by-head"),
        ("lookahead-momentum", "slow-momentum", "no-softcap"),
        ("u-net-skips", "backout", "embedding-eps"),
    ],
)
def test_ideas_about_one_thing_are_more_alike_than_others(idea, kin, stranger):
    assert likeness(of(idea), of(kin)) > 0.3
    assert likeness(of(idea), of(stranger)) < 0.1


def test_two_turns_of_a_dial_are_alike_and_turns_of_two_dials_are_not():
    less, more = turned("SMOOTHING = 1.0", "SMOOTHING = 0.5"), turned("SMOOTHING = 1.0", "SMOOTHING = 4.0")
    assert likeness(less, more) == 1.0
    assert likeness(less, turned("SHARE = 0.25", "SHARE = 0.5")) == 0.0


def test_comments_layout_and_values_are_no_traits():
    assert turned("SMOOTHING = 1.0  # added", "SMOOTHING = 2.0  # not added") == {"SMOOTHING ="}
    assert (
        turned("help_me = 1\n" if "help_me" in TOY else "import time\n", "import time  # for the clock\n")
        == frozenset()
    )


def test_an_edit_without_traits_counts_as_known():
    assert likeness(frozenset(), frozenset({"a"})) == 1.0


def test_the_least_tried_comes_first_and_the_next_is_unlike_it():
    ideas = [of("signed-bigram"), of("slow-momentum"), of("lookahead-momentum"), of("no-softcap")]
    order = least_alike_first(ideas, [of("trigram-embedding")])
    assert sorted(order) == [0, 1, 2, 3]
    assert order[-1] == 0
    assert set(order[:2]) != {1, 2}
    assert least_alike_first(ideas[:1], []) == [0]


def test_what_a_night_has_tried_is_each_edit_of_its_parent():
    history = [attempt(number, "search") for number in range(3)]
    asked = attempt(3, "dawn", without=(1,))
    assert tried_traits([*history, asked]) == [frozenset({"LR ="})] * 2

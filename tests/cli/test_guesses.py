"""A wrong word is answered with the command or the option that does what it says, or without a guess."""

import pytest
from commands import refused
from nights import Grounds

from agent.cli.main import COMMANDS, MEANT


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("resume", "run --tag TAG"),
        ("continue", "run --tag TAG"),
        ("kill", "stop --now"),
        ("cancel", "stop"),
        ("abort", "stop --now"),
        ("log", "results"),
        ("logs", "show best --log"),
        ("diff", "show best --diff"),
        ("list", "nights"),
        ("ls", "nights"),
        ("checkout", "take"),
        ("apply", "take"),
        ("help", "--help"),
        ("version", "--version"),
        ("-V", "--version"),
        ("-v", "--version"),
        ("statsu", "status"),
        ("exp", "export"),
    ],
)
def test_a_word_of_another_tool_a_slip_or_a_beginning_is_answered_with_the_command(tmp_path, word, command):
    said = refused(Grounds(tmp_path).nightshift(word))
    assert f"there is no command '{word}'. Did you mean nightshift {command}? See all with: " in said


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("run --resume", "--tag"),
        ("run --continue=yes", "--tag"),
        ("run --time 8h", "--hours"),
        ("run --experimens 3", "--experiments"),
        ("run --exp 3", "--experiments"),
        ("run --budget 5", "--budget-s"),
        ("run --tga x", "--tag"),
        ("status -f", "--follow"),
    ],
)
def test_a_wrong_option_is_answered_with_the_one_that_is_meant(tmp_path, words, option):
    said = refused(Grounds(tmp_path).nightshift(*words.split()))
    given = words.split()[1].partition("=")[0]
    command = words.split()[0]
    assert said == f"Unknown option: {given}. Did you mean {option}? See: nightshift {command} --help"


@pytest.mark.parametrize("words", ["xyzzy", "-", "show --resume", "results --tga x", "run --ba-nana", "run -v"])
def test_where_nothing_is_near_there_is_no_guess(tmp_path, words):
    assert "Did you mean" not in refused(Grounds(tmp_path).nightshift(*words.split()))


def test_a_wrong_value_is_answered_with_a_whole_question(tmp_path):
    said = refused(Grounds(tmp_path).nightshift("run", "--sandbox", "requir"))
    assert said.endswith('Did you mean "require"? See: nightshift run --help')


def test_all_that_may_be_meant_exists_and_no_word_means_two_things(tmp_path):
    words = [word for others in MEANT.values() for word in others.split()]
    assert len(words) == len(set(words))
    assert not set(words) & set(COMMANDS)
    helps = "".join(Grounds(tmp_path).nightshift(name, "--help").stdout for name in ("run", "status", "export", "try"))
    for command in MEANT:
        first = command.split()[0]
        assert first in (*COMMANDS, "--help", "--version") or f"{first} " in helps, command

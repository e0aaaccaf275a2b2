"""The comparison of authors: the arms' words, the costs that it reads from journals, and its test of itself."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from nights import environment, make_repository
from samples import NIGHT
from shipments import ship_night

from agent.experiment import Ask
from agent.records.place import Place

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import authors  # noqa: E402
import fleet  # noqa: E402

CALLS = (
    Ask(1, "llm:toy", NIGHT.started, 60.0, "toy", 1000, 50, 0.25, tokens_cached=800),
    Ask(2, "explore:toy", NIGHT.started, 30.0, "toy", 2000, 70, 0.5),
    Ask(2, "llm:toy", NIGHT.started, 90.0, "toy", failure="no answer within 90 s"),
)


def a_night(out: Path, arm: str, number: int, honest: float, *asks: Ask) -> None:
    """A night as the program leaves it: its clone with the journal, and its record."""
    tag = f"x-{arm}-{number}"
    (out / "work").mkdir(parents=True, exist_ok=True)
    place = Place.of(make_repository(out / "work" / tag, "A = 1\n") / "train_mlx.py")
    ship_night(place, out, tag, [honest], honest, *asks)


@pytest.mark.slow
def test_gains_and_costs_of_an_author_stand_beside_those_of_search_and_catalogue(tmp_path, capsys):
    for number, honest in enumerate((0.3, 0.2)):
        a_night(tmp_path, "author", number, honest, *CALLS)
        a_night(tmp_path, "catalogue", number, honest / 2)
    a_night(tmp_path, "search", 0, 0.01)
    assert authors.main(["--report", str(tmp_path), "--json", str(tmp_path / "flat.json")]) == 0
    flat = json.loads((tmp_path / "flat.json").read_text())
    assert (flat["author"], flat["self_test"], flat["author_nights"], flat["search_nights"]) == ("toy", 0, 2, 1)
    assert (flat["author_honest"], flat["author_over_catalogue"]) == (pytest.approx(0.25), pytest.approx(0.125))
    assert flat["author_over_catalogue_low"] < 0.125 < flat["author_over_catalogue_high"]
    assert (flat["author_calls"], flat["author_failed_calls"], flat["author_usd"]) == (6, 2, 1.5)
    assert (flat["author_tokens_in"], flat["author_tokens_cached"], flat["author_tokens_out"]) == (6000, 1600, 240)
    assert flat["author_asking_hours"] == pytest.approx(0.1)
    assert flat["search_usd"] is None
    told = capsys.readouterr()
    assert "the author is toy" in told.out
    assert "6,000" in told.out
    assert "self-test" not in told.err


def test_costs_are_not_told_where_a_journal_is_gone(tmp_path):
    a_night(tmp_path, "author", 0, 0.3, *CALLS)
    next(tmp_path.glob("work/*/experiments/nights/*/journal.sqlite")).unlink()
    flat = authors.flatten(tmp_path)
    assert flat["author_honest"] == pytest.approx(0.3)
    assert "author_calls" not in flat


def words_of(*options: str) -> dict[str, list[str]]:
    """Of each arm, what follows the words that all nights share."""
    args = authors.parse([*options, "--out", "x", "--nights", "2", "--name", "n"])
    args.words = {"author": authors.as_words(authors.asked_of(args))}
    commands = {night.arm: fleet.command(args, night, "cpu") for night in fleet.planned(args)}
    assert {tuple(words[words.index("--budget-s") : words.index("--proposer")]) for words in commands.values()} == {
        ("--budget-s", "40", "--dawn", "8", "--experiments", "12")
    }
    return {arm: words[words.index("--proposer") :] for arm, words in commands.items()}


def test_the_arms_differ_in_the_source_of_ideas_alone():
    local = "openai:toy@http://127.0.0.1:9/v1"
    found = words_of("--llm", local, "--price", "1,2,0.1")
    assert found["author"] == ["--proposer", "llm", "--llm", local, "--price", "1,2,0.1"]
    assert (found["search"], found["catalogue"]) == (["--proposer", "search"], ["--proposer", "catalogue"])
    found = words_of("--command", "true --key", "--agent-minutes", "3")
    assert found["author"] == ["--proposer", "command", "--command", "true --key", "--agent-minutes", "3"]


def test_tables_name_neither_an_address_nor_the_words_of_a_command_line():
    args = authors.parse(["--llm", "openai:toy@http://10.0.0.7:9/v1", "--out", "x"])
    assert authors.name_of(args) == "openai:toy"
    assert authors.name_of(authors.parse(["--command", "/opt/bin/coder --team ours", "--out", "x"])) == "coder"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "name the author: --llm SPEC or --command CMD"),
        (["--llm", "openai:toy", "--command", "true"], "compare one at a time"),
        (["--quick", "--price", "1"], "not two prices"),
    ],
)
def test_without_one_author_the_program_ends_with_a_sentence(options, words, capsys):
    with pytest.raises(SystemExit) as end:
        authors.main([*options, "--out", "x"])
    assert end.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--llm", "gpt"], "authors: 'gpt' names no language model"),
        (["--llm", "openai:toy"], "authors: OPENAI_API_KEY is not set"),
        (["--command", "no-such-agent -p"], "no-such-agent, the program of --command, is not on"),
    ],
)
def test_an_author_that_cannot_be_asked_is_refused_before_any_night(options, words, capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert authors.main([*options, "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow  # three nights of the toy script
@pytest.mark.usefixtures("own_cache")
def test_the_program_tests_itself_with_a_scripted_server(tmp_path):
    words = [sys.executable, str(BENCHMARKS / "authors.py"), "--quick", "--json", str(tmp_path / "flat.json")]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "self-test: a scripted server has answered, no model" in done.stderr
    flat = json.loads((tmp_path / "flat.json").read_text())
    assert (flat["self_test"], flat["author"]) == (1, "openai:scripted-server")
    assert [flat[f"{arm}_attempts"] for arm in ("author", "search", "catalogue")] == [2, 2, 2]
    assert flat["author_calls"] >= 2
    assert flat["author_failed_calls"] == 0
    assert "author_search_attempts" not in flat  # the search has not taken the author's place
    assert flat["author_tokens_in"] > 0
    assert flat["author_usd"] > 0
    assert flat["author_honest"] is not None

"""The comparison of sources by real nights: its random dials, what it makes of records, authors, a cut."""

import ast
import json
import math
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import wait_until
from nights import SCRIPTS, environment, make_repository
from samples import NIGHT
from shipments import ship_night

from agent.errors import NightError
from agent.experiment import Ask
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import TAG
from agent.script.dials import Choices, Range, read_dials, searched

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import measure  # noqa: E402
import random_dials  # noqa: E402
import real_nights  # noqa: E402
import real_outcomes  # noqa: E402

SCRIPT = (SCRIPTS / "unigram.py").read_text()

# ---- random dials ----------------------------------------------------------------------------------------------------


def test_random_dials_stay_within_their_ranges():
    script = measure.SCRIPT.read_text()
    spans = {dial.name: dial.span for dial in searched(script, "cpu")}
    before = {dial.name: dial.value for dial in read_dials(script, "cpu")}
    for seed in range(8):
        text, title = random_dials.turned(script, "cpu", random.Random(seed))
        after = {dial.name: dial.value for dial in read_dials(text, "cpu")}
        differing = [name for name in after if after[name] != before[name]]
        assert 1 <= len(differing) <= 3
        for name in differing:
            assert name in title
            match spans[name]:
                case Choices(values):
                    assert after[name] in values
                case Range(low, high, _, whole):
                    assert low <= after[name] <= high
                    assert isinstance(after[name], int) == whole


def test_the_source_of_random_dials_answers_as_a_coding_agent_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    edits = []
    for task in ("the first", "the first", "one was turned down"):
        Path("train_mlx.py").write_text(SCRIPT)
        Path("TASK.md").write_text(task)
        random_dials.main(["--device", "cpu", "--seed", "3"])
        assert " → " in Path("IDEA.md").read_text().splitlines()[0]
        edits.append(Path("train_mlx.py").read_text())
        ast.parse(edits[-1])
    assert edits[0] == edits[1] != edits[2]


# ---- records ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path):
    return Place.of(make_repository(tmp_path / "repository", "A = 1\n") / "train_mlx.py")


def test_nights_are_compared_by_their_honest_gains(place, tmp_path, capsys):
    for tag, gains, honest in (
        ("x-mix-0", [0.2, -0.1, 0.1, math.nan], 0.25),
        ("x-mix-1", [0.1], 0.15),
        ("x-search-0", [0.04, -0.1], 0.04),
        ("x-search-1", [-0.1], None),  # nothing was kept
    ):
        ship_night(place, tmp_path / "out", tag, gains, honest)
    nights = real_outcomes.read_all(tmp_path / "out")
    assert [one.night.tag for one in nights] == ["x-mix-0", "x-mix-1", "x-search-0", "x-search-1"]
    flat = real_outcomes.flatten(nights)
    assert (flat["mix_nights"], flat["mix_attempts"], flat["mix_kept"], flat["mix_crashes"]) == (2, 5, 3, 1)
    assert flat["mix_honest"] == pytest.approx(0.2)
    assert flat["mix_honest_high"] - 0.2 == pytest.approx(12.706 * 0.05, rel=1e-3)  # Student's t, one degree of freedom
    assert flat["search_honest"] == pytest.approx(0.02)
    assert flat["mix_times_search"] == pytest.approx(10)
    assert flat["mix_over_search"] == pytest.approx(0.18)
    assert flat["mix_over_search_low"] < 0.18 < flat["mix_over_search_high"]
    assert flat["mix_recorded"] == pytest.approx((0.3 + 0.1) / 2)
    # of the catalogue's three attempts one took 36 s of asking in each night; each run and its score took 36 s
    assert (flat["mix_catalogue_attempts"], flat["mix_catalogue_kept"]) == (3, 3)
    assert flat["mix_catalogue_hours"] == pytest.approx(3 * 36 / 3600)
    assert (flat["mix_search_attempts"], flat["mix_search_calls"]) == (2, 2)
    real_outcomes.print_results(flat)
    told = capsys.readouterr().out
    assert "mix catalogue" in told
    assert "10.0" in told
    json.dumps(flat, allow_nan=False)


def test_nights_of_two_kinds_are_not_compared(place, tmp_path, capsys):
    ship_night(place, tmp_path, "x-mix-0", [0.2], 0.1)
    ship_night(place, tmp_path, "x-search-0", [0.2], 0.1, device="another")
    with pytest.raises(NightError, match="do not compare"):
        real_outcomes.flatten(real_outcomes.read_all(tmp_path))
    assert real_nights.PROGRAM.main(["--report", "--folder", str(tmp_path)]) == 2
    assert "do not compare" in capsys.readouterr().err


def test_the_arms_differ_in_the_source_of_ideas_alone(tmp_path):
    author = "--command 'coder --team ours' --agent-minutes 3"
    words = ["--arms", "author", "search", "random", "--author", author, "--experiments", "12", "--name", "n"]
    args = real_nights.PROGRAM.parse(words)
    commands = {night.arm: real_nights.command(args, night, "cpu") for night in real_nights.planned(args, tmp_path)}
    same = {tuple(words[words.index("--budget-s") : words.index("--proposer")]) for words in commands.values()}
    assert same == {("--budget-s", "40", "--dawn", "8", "--experiments", "12")}
    sources = {arm: words[words.index("--proposer") + 1 :] for arm, words in commands.items()}
    assert sources["author"] == ["command", "--command", "coder --team ours", "--agent-minutes", "3"]
    assert sources["search"] == ["search"]
    assert sources["random"][:2] == ["command", "--command"]


def test_gains_and_costs_of_an_author_stand_beside_those_of_the_search(tmp_path):
    calls = (
        Ask(1, "llm:toy", NIGHT.started, 60.0, "toy", 1000, 50, 0.25, tokens_cached=800),
        Ask(2, "explore:toy", NIGHT.started, 30.0, "toy", 2000, 70, 0.5),
        Ask(2, "llm:toy", NIGHT.started, 90.0, "toy", failure="no answer within 90 s"),
    )
    for tag, honest, asks in (("x-author-0", 0.3, calls), ("x-author-1", 0.2, calls), ("x-search-0", 0.01, ())):
        clone = make_repository(tmp_path / "work" / tag, "A = 1\n")
        ship_night(Place.of(clone / "train_mlx.py"), tmp_path, tag, [honest], honest, *asks)
    flat = real_outcomes.flatten(real_outcomes.read_all(tmp_path))
    assert (flat["author_nights"], flat["search_nights"]) == (2, 1)
    assert flat["author_honest"] == pytest.approx(0.25)
    told = {name: flat[f"author_llm_{name}"] for name in ("calls", "failures", "usd", "tokens_in", "tokens_cached")}
    assert told == {"calls": 4, "failures": 2, "usd": 0.5, "tokens_in": 2000, "tokens_cached": 1600}
    assert flat["search_search_usd"] is None


# ---- real ones -------------------------------------------------------------------------------------------------------


def started(out: Path, *words: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        str(BENCHMARKS / "real_nights.py"),
        "--quick",
        "--name",
        "x",
        "--folder",
        str(out),
        *words,
    ]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow  # two dozen runs
@pytest.mark.usefixtures("own_cache")
def test_real_nights_are_cut_off_reported_and_gone_on_with(tmp_path):
    out = tmp_path / "out"
    process = started(out)
    journal = out / "work" / "x-search-0" / "experiments" / "nights" / "x-search-0" / "journal.sqlite"

    def has_a_result() -> bool:
        if not journal.exists():
            return False
        with Journal.read(journal) as night:
            return any(attempt.decision for attempt in night.attempts())

    wait_until(has_a_result, 120)
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert (out / "x-search-0" / "night.json").exists()
    assert list(out.glob("work/*.over")) == []

    process = started(out, "--json", str(tmp_path / "flat.json"))
    told, _ = process.communicate(timeout=600)
    assert process.returncode == 0, told
    flat = json.loads((tmp_path / "flat.json").read_text())
    assert (flat["search_attempts"], flat["random_attempts"]) == (2, 2)
    assert flat["random_command_attempts"] == 2  # the search has not taken their place
    assert flat["search_honest"] is not None
    assert {line.split("\t")[TAG] for line in (out / "results.tsv").read_text().splitlines()[1:]} == {
        "x-random-0", "x-search-0"
    }  # fmt: skip
    assert sorted(path.name for path in out.glob("work/*.over")) == ["x-random-0.over", "x-search-0.over"]

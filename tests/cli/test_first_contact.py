"""A first contact: versions, data and one's own text, without the words of another program."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from commands import refused
from nights import PROJECT, command, environment, unigram
from terminals import Terminal

from agent import __version__
from agent.cli.main import overview
from agent.cli.run import named_text
from agent.night.opening import Request, open_night
from agent.records.place import Place

OWN_PREPARE = 'import sys\n\ndef main():\n    print("own", sys.argv[1:])\n    return 7\n'


@pytest.mark.parametrize("words", [("--version",), ()])
def test_the_bare_name_and_version_are_answered(grounds, words):
    done = grounds.nightshift(*words)
    assert done.returncode == 0
    assert done.stdout == f"nightshift {__version__}\n" if words else "Examples:" in done.stdout


def test_a_misspelt_command_is_told_from_the_one_with_a_similar_name(grounds):
    assert "no command 'stauts'; similar: nightshift status; see all with: " in refused(grounds.nightshift("stauts"))
    assert "no command 'zzz'; see all with: nightshift --help" in refused(grounds.nightshift("zzz"))


def test_an_error_is_folded_between_words_on_a_terminal(grounds):
    with Terminal(command("stauts"), grounds.root, columns=40) as terminal:
        assert terminal.to_the_end() == 2
        lines = terminal.text().rstrip().splitlines()
    assert lines[0] == "nightshift: there is no command"
    assert all(line.startswith("  ") for line in lines[1:])
    assert " ".join(" ".join(lines).split()).endswith("similar: nightshift status; see all with: nightshift --help")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_examples_of_the_help_fit_into_any_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, overview().splitlines())) <= columns


@pytest.mark.slow
def test_what_to_read_next_names_the_night_where_another_was_at_work_later(grounds):
    for tag in ("a", "b"):
        grounds.try_scripts(tag, [unigram(SHARPNESS=0.9)])
    done = grounds.nightshift("run", "--tag", "a", "--experiments", "1")
    assert "  nightshift show a:1" in done.stdout


def test_prepare_has_the_help_and_the_refusals_of_prepare_py_under_its_own_name(grounds):
    ours = grounds.nightshift_process("prepare", "--help").stdout
    theirs = subprocess.run(
        [sys.executable, "prepare.py", "--help"],
        cwd=grounds.root, env=environment(), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert ours.startswith("usage: nightshift prepare [")
    assert theirs.startswith("usage: prepare.py [")
    assert ours.partition("\n\n")[2] == theirs.partition("\n\n")[2]
    unknown = grounds.nightshift_process("prepare", "--scale", "huge")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("nightshift: argument --scale: invalid choice: 'huge'")
    assert unknown.stderr.count("\n") == 1


def test_prepare_is_that_of_the_repository_which_a_night_would_keep(grounds):
    (grounds.root / "prepare.py").write_text(OWN_PREPARE)
    (grounds.root / "inner").mkdir()
    for folder in (grounds.root, grounds.root / "inner"):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "agent", "prepare", "--shards", "3"],
            cwd=folder, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.stdout, done.returncode) == ("own ['--shards', '3']\n", 7), done.stderr


def small_scale(root):
    """Let the prepare.py of a repository make rows that a short text fills."""
    path = root / "prepare.py"
    text, count = re.subn(r'Scale\("tiny", .*?\)', 'Scale("tiny", 64, 512, 64 * 64)', path.read_text())
    assert count == 1
    path.write_text(text)


def test_a_dataset_is_prepared_for_a_night_which_keeps_it_and_refuses_another(grounds, tmp_path, monkeypatch):
    small_scale(grounds.root)
    text = tmp_path / "words.jsonl"
    documents = (PROJECT / "train_mlx.py").read_text().split("\n")
    text.write_text("".join(json.dumps({"text": f"{number} {line}"}) + "\n" for number, line in enumerate(documents)))
    request = Request(Place.of(grounds.root / "train_mlx.py"), "t", 0.05, dataset=named_text(str(text)))
    night = open_night(request)
    assert night.data.startswith(f"{tmp_path}/cache/data/words-tiny-")  # whatever $NIGHTSHIFT_DATA says

    monkeypatch.chdir(grounds.root)
    same = replace(request, dataset=named_text("../words.jsonl"))
    assert open_night(same) == night
    other = refused(grounds.nightshift("run", "--tag", "t", "--dataset", "stdlib"))
    assert other == (
        f"night t trains on {text}, not stdlib, so scores would not compare; leave --dataset out to resume it, "
        f"or choose another --tag"
    )


def test_a_dataset_that_is_not_there_is_refused_before_anything_is_written(grounds):
    said = refused(grounds.nightshift("run", "--dataset", "no/where", "--tag", "t"))
    assert said.startswith(f"no dataset '{grounds.root}/no/where': choose stdlib, ")
    assert not (grounds.root / "experiments").exists()

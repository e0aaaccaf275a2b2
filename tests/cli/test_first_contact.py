"""A first contact: versions, data and one's own text, without the words of another program."""

import json
import re
import subprocess
import sys
import tomllib

import pytest
from commands import refused
from nights import PROJECT, environment

OWN_PREPARE = 'import sys\n\ndef main():\n    print("own", sys.argv[1:])\n    return 7\n'


@pytest.mark.parametrize("words", [("--version",), ()])
def test_the_bare_name_and_version_are_answered(grounds, words):
    done = grounds.nightshift(*words)
    assert done.returncode == 0
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert done.stdout == f"nightshift {declared}\n" if words else "examples:" in done.stdout


def test_prepare_has_the_help_and_the_refusals_of_prepare_py_under_its_own_name(grounds):
    ours = grounds.nightshift_process("prepare", "--help").stdout
    theirs = subprocess.run(
        [sys.executable, "prepare.py", "--help"],
        cwd=grounds.root, env=environment(), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    named = re.match(r"usage: (.* -m agent prepare) \[", ours)
    assert named is not None
    assert theirs.startswith("usage: prepare.py [")
    assert ours.partition("\n\n")[2] == theirs.partition("\n\n")[2]
    unknown = grounds.nightshift_process("prepare", "--scale", "huge")
    assert unknown.returncode == 2
    assert "invalid choice: 'huge'" in unknown.stderr
    assert grounds.nightshift_process("prepare", "--dataset", "nowhere").stderr.startswith("prepare: no dataset")


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


def test_run_with_a_dataset_prepares_it_and_the_night_keeps_it(grounds, tmp_path):
    small_scale(grounds.root)
    text = tmp_path / "words.jsonl"
    documents = (PROJECT / "train_mlx.py").read_text().split("\n")
    text.write_text("".join(json.dumps({"text": f"{number} {line}"}) + "\n" for number, line in enumerate(documents)))
    night = ("run", "--judge", "greedy", "--no-dry-run", "--tag", "t", "--budget-s", "0.05", "--proposer", "search")
    done = grounds.nightshift(*night, "--experiments", "1", "--dataset", "../words.jsonl")
    assert done.returncode == 0, done.stderr
    assert re.search(r"data +\S+/words-tiny-", done.stdout)
    assert [attempt.settled for attempt in grounds.attempts("t")] == [True, True]

    again = grounds.nightshift("run", "--tag", "t", "--experiments", "1", "--dataset", str(text))
    assert again.returncode == 0, again.stderr
    other = refused(grounds.nightshift("run", "--tag", "t", "--dataset", "stdlib"))
    assert other == (
        f"night t trains on {grounds.root}/../words.jsonl, not stdlib, so scores would not compare; leave --dataset "
        f"out to resume it, or choose another --tag"
    )


def test_a_dataset_that_is_not_there_is_refused_before_anything_is_written(grounds):
    said = refused(grounds.nightshift("run", "--dataset", "no/where", "--tag", "t"))
    assert said.startswith(f"no dataset '{grounds.root}/no/where': choose stdlib, ")
    assert not (grounds.root / "experiments").exists()

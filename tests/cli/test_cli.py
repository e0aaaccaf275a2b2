"""The command line as a person meets it: real processes, real signals, one clear sentence for every mistake."""

import errno
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from commands import nothing_yet, refused, training, wait_until
from nights import PROJECT, Grounds, command, environment, git

from agent.cli.run import named_text
from agent.experiment import Ending, Options, Proposal
from agent.lab.data import data_dir
from agent.night.lock import only_night
from agent.night.opening import Request, open_night
from agent.proposers import registry
from agent.proposers.proposer import Briefing, Proposer
from agent.proposers.registry import PROPOSERS
from agent.records.place import Place

pytestmark = pytest.mark.usefixtures("own_cache")
ONE_RUN = ("--judge", "greedy")  # one run of each attempt: other judges first learn the noise from seeds of attempt 0


# ---- a night ---------------------------------------------------------------------------------------------------------


def test_a_night_from_the_command_line_touches_no_file_but_its_own_and_results_tsv(grounds):
    night = grounds.nightshift("run", *ONE_RUN, "--experiments", "1", "--budget-s", "0.05", "--tag", "t")
    assert night.returncode == 0, night.stderr
    for part in (
        *("#0 · baseline · val_bpb", "#1 · "),
        *("  ideas    mix: search, catalogue, queue\n", "  nightshift show t:best"),
    ):
        assert part in night.stdout
    assert night.stdout.startswith("new night t on branch experiments/0.05s-t\n")
    assert [row["attempt"] for row in grounds.rows()] == ["0", "1"]
    assert (grounds.root / "experiments" / "nights" / ".gitignore").read_text() == "*\n"
    assert grounds.git("status", "--porcelain") == "?? results.tsv"
    (grounds.root / "results.tsv").unlink()
    assert "baseline" in grounds.nightshift("results").stdout  # rendered again
    again = grounds.nightshift("run", "--tag", "t", "--experiments", "1").stdout
    assert again.startswith("night t goes on after 2 attempts, on branch experiments/0.05s-t\n")
    other_budget = refused(grounds.nightshift("run", "--tag", "t", "--budget-s", "0.3"))
    assert "night t has --budget-s 0.05, not 0.3" in other_budget


@pytest.mark.slow
def test_the_first_signal_ends_after_the_run_and_the_second_ends_the_run(grounds):
    night = grounds.start("run", *ONE_RUN, "--budget-s", "0.6", "--tag", "t", "--sandbox", "off")
    wait_until(training(grounds, "t"))
    night.send_signal(signal.SIGHUP)  # a closed terminal sends this
    assert "nightshift run --tag t  go on" in night.communicate(timeout=120)[0]
    assert night.returncode == 0
    assert [(attempt.number, attempt.settled) for attempt in grounds.attempts("t")] == [(0, True)]

    night = grounds.start("run", "--tag", "t")  # judged as it was opened
    wait_until(training(grounds, "t", 1))
    night.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert night.poll() is None
    night.send_signal(signal.SIGINT)
    night.communicate(timeout=120)
    assert night.returncode == 0
    assert [run.ending for run in grounds.attempts("t")[1].runs] == [Ending.STOPPED]

    night = grounds.nightshift("run", "--tag", "t", "--experiments", "1", NIGHTSHIFT_DATA="/elsewhere")
    assert "  data     " in night.stdout
    assert "/elsewhere" not in night.stdout
    assert [run.ending for run in grounds.attempts("t")[1].runs] == [Ending.STOPPED, Ending.FINISHED]
    assert [row["attempt"] for row in grounds.rows()] == ["0", "1"]


def test_a_signal_while_data_are_prepared_leaves_nothing_running(grounds, tmp_path, monkeypatch):
    monkeypatch.delenv("NIGHTSHIFT_DATA")
    night = grounds.start("run")
    wait_until(lambda: list((tmp_path / "cache" / "data").glob("*")))
    family = psutil.Process(night.pid).children(recursive=True)
    night.terminate()
    said = night.communicate(timeout=120)[0]
    assert night.returncode == 130, said
    assert "Traceback" not in said
    assert [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []


def test_stop_and_a_second_night_meet_the_first_which_nobody_reads(grounds):
    night = grounds.start("run", "--budget-s", "20", "--tag", "first")
    night.stdout.readline()
    night.stdout.close()
    wait_until(training(grounds, "first"))
    second = refused(grounds.nightshift("run", "--tag", "second"))
    assert second.startswith(f"night first (pid {night.pid}) is running in this repository")
    assert not grounds.folder("second").exists()
    assert f"night first: running (pid {night.pid})" in grounds.nightshift("status").stdout
    assert "no results yet" in nothing_yet(grounds.nightshift("results"))
    assert not (grounds.root / "results.tsv").exists()  # the night itself writes it
    assert "after what it runs now" in grounds.nightshift("stop").stdout
    assert "ends after what runs now" in grounds.nightshift("status").stdout
    assert night.poll() is None
    assert "ends now" in grounds.nightshift("stop", "--now").stdout
    assert night.wait(timeout=20) == 0
    assert "no night is running" in nothing_yet(grounds.nightshift("stop"))


def test_a_dataset_is_prepared_for_one_night_which_keeps_it_and_refuses_another(grounds, tmp_path, monkeypatch):
    path = grounds.root / "prepare.py"  # a short text fills these rows
    path.write_text(re.sub(r'Scale\("tiny", .*?\)', 'Scale("tiny", 64, 512, 64 * 64)', path.read_text()))
    text = tmp_path / "words.jsonl"
    documents = (PROJECT / "train_mlx.py").read_text().split("\n")
    text.write_text("".join(json.dumps({"text": f"{number} {line}"}) + "\n" for number, line in enumerate(documents)))
    request = Request(Place.of(grounds.root / "train_mlx.py"), "t", 0.05, dataset=named_text(str(text)))
    night = open_night(request, None, Options(), None)
    assert night.data.startswith(f"{tmp_path}/cache/data/words-tiny-")  # whatever $NIGHTSHIFT_DATA says
    with monkeypatch.context() as patch:
        patch.delenv("NIGHTSHIFT_DATA")
        assert data_dir() is None, "other nights, here and in other folders, train on what they did"

    assert open_night(request, night, Options(), None).data == night.data, "the same command goes on"
    other = refused(grounds.nightshift("run", "--tag", "t", "--dataset", "stdlib"))
    assert other.startswith(f"night t has --dataset {text}, not stdlib; leave the option out")
    said = refused(grounds.nightshift("run", "--dataset", "no/where", "--tag", "u"))
    assert said.startswith(f"{grounds.root}/no/where does not exist: give the path of a file or folder, or choose ")
    assert not grounds.folder("u").exists()


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_a_question_in_a_folder_without_nights_is_answered_without_words_of_git(tmp_path):
    for question in ("status", "export record"):
        said = nothing_yet(Grounds(tmp_path).nightshift(*question.split()))
        assert f"no night has run in {tmp_path}; go to the folder of your script" in said
        assert said.endswith("begin with: nightshift init")
        assert not re.search(r"\bgit\b|repository|commit", said.replace(str(tmp_path), ""))


def test_a_file_that_is_no_script_is_no_reason_to_make_its_folder_a_repository(tmp_path):
    (tmp_path / "users").write_text("root:x:0:0:root:/root:/bin/bash\n")
    assert refused(Grounds(tmp_path).nightshift("run", "--script", "..")) == ".. is a folder; name a file"
    said = refused(Grounds(tmp_path).nightshift("run", "--script", str(tmp_path / "users")))
    assert said == f"{tmp_path}/users line 1 does not parse: invalid syntax; correct it and run again"
    assert not (tmp_path / ".git").exists()


def test_a_night_that_still_prepares_its_text_is_not_told_to_begin(grounds):
    with only_night(grounds.root / ".git"):
        said = nothing_yet(grounds.nightshift("status"))
    assert "a night has just begun here and has no name yet; give the command again in a moment" in said


def script(text: str) -> Callable[[Path], object]:
    return lambda root: (root / "train_mlx.py").write_text(text)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda root: (root / "train_mlx.py").unlink(), "train_mlx.py does not exist; run from the folder of your"),
        (script("def main():\n    pass\n\ndef load_model(:\n"), "train_mlx.py line 4 does not parse: "),
        (lambda root: (root / "prepare.py").unlink(), "prepare.py is missing, and every run needs it; add"),
        (lambda root: git(root, "branch", "experiments"), "a branch called 'experiments' is in the way"),
    ],
)
def test_a_repository_unfit_for_a_night(grounds, damage, sentence):
    damage(grounds.root)
    assert sentence in refused(grounds.nightshift("run", "--experiments", "1", "--budget-s", "0.05"))
    assert not (grounds.root / "results.tsv").exists()
    assert not (grounds.root / "experiments").exists()
    assert grounds.git("for-each-ref", "refs/experiments") == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--tag ../up", "'../up' is no tag; use letters"),
        ("--tag seen", "tag seen is taken by refs or rows of results.tsv whose journal is not here; use --tag seen-2"),
        ("--budget-s nan", "Invalid value for --budget-s: 'nan' is no number"),
        ("--sandbox none", "--sandbox has no such value; leave it out for its default"),
        ("--price 1", "--price: '1' is not two prices, or three, in dollars for a million tokens"),
        ("--command 'half", "cannot be split into words (No closing quotation); correct its quotes"),
        ("--proposer llm", "--proposer llm needs --llm, as in: nightshift run --proposer llm --llm openai:"),
        ("--price 1,2", "--price says nothing where no llm is asked; ask it with: "),
        ("--confirm 2", "--confirm is for --judge greedy; balanced decides by itself how often to measure"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_written(grounds, options, sentence):
    grounds.git("update-ref", "refs/heads/experiments/5min-seen", "HEAD")
    assert sentence in refused(grounds.nightshift("run", *options.split()))
    assert not (grounds.root / "experiments").exists()


SHORT = ("--budget-s", "0.05", "--experiments", "1")
WITHOUT = "import sys; sys.modules[{!r}] = None; from agent.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("options", "package", "sentence"),
    [
        ("--pool ray", "ray", "--pool ray needs the package ray; install it with: "),
        ("--llm openai:m@http://localhost:9/v1", "openai", "the openai SDK is not installed; run: "),
        ("--llm anthropic:m", "", "put your key into it, or name a server of your own, as in openai:qwen3-coder@http:"),
        ("--command no-such-agent", "", "no-such-agent, the program of --command, is not on PATH"),
        ("", "", "'nowhere'; install the missing package"),
    ],
)
def test_what_this_machine_lacks_is_no_wrong_command(grounds, options, package, sentence):
    if not options:
        (grounds.root / "prepare.py").open("a", encoding="utf-8").write("import nowhere")
    # The night gets a process of its own, since it forks on a cluster.
    words = [sys.executable, "-P", "-c", WITHOUT.format(package or "nowhere"), "run", *SHORT, *options.split()]
    env = environment(ANTHROPIC_API_KEY="")
    said = refused(subprocess.run(words, cwd=grounds.root, env=env, capture_output=True, text=True, check=False), 1)
    assert sentence in said
    assert not (grounds.root / "experiments").exists()


def test_without_git_every_command_that_needs_it_says_so(grounds, tmp_path):
    for words in (("run", *SHORT), ("status",), ("take", "best"), ("init",)):
        assert "git is not installed or not on PATH" in refused(grounds.nightshift(*words, PATH=str(tmp_path)), 1)


def test_files_that_cannot_be_used_are_named(grounds, tmp_path):
    (tmp_path / "file").write_text("no folder")
    cache = refused(grounds.nightshift("run", NIGHTSHIFT_CACHE=str(tmp_path / "file"), NIGHTSHIFT_DATA=""), 1)
    assert str(tmp_path / "file") in cache
    assert "Not a directory" in cache
    assert "no whole corpus in" in refused(grounds.nightshift("run", NIGHTSHIFT_DATA=str(tmp_path)), 1)


class FullDisk(Proposer):
    name = "full"

    @classmethod
    def of(cls, around: object) -> "FullDisk":
        return cls()

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.slow
def test_a_night_that_the_machine_halts_is_named_in_the_command_that_goes_on(grounds, monkeypatch):
    monkeypatch.setattr(registry, "PROPOSERS", (*PROPOSERS, FullDisk))
    quick = ("--budget-s", "0.05", "--judge", "greedy", "--sandbox", "off")
    done = grounds.nightshift("run", "--proposer", "full", *quick)
    again = f"nightshift run --proposer full {' '.join(quick)} --tag "
    sentence = rf"nightshift: the disk is full, or it fails \(.*\); free some space, .* resume with: {again}"
    named = re.fullmatch(rf"{sentence}(\w+) \(nothing is lost\)", done.stderr.strip())
    assert (done.returncode, bool(named)) == (1, True), done.stderr
    assert [row["attempt"] for row in grounds.rows()] == ["0"]
    assert grounds.attempts(named[1])[0].settled


@pytest.mark.parametrize(
    ("there", "code", "words"), [(">&-", 0, ""), (">/dev/full", 1, "the disk is full"), (">/dev/full 2>&1", 1, "")]
)
@pytest.mark.parametrize("option", ["", "--json"])
def test_an_answer_without_a_place_to_go_is_no_defect_and_one_that_is_cut_no_success(
    grounds, there, code, words, option
):
    line = f"{shlex.join(command('ideas', 'smear'))} {option} {there}"
    done = subprocess.run(["sh", "-c", line], cwd=grounds.root, env=environment(), capture_output=True, text=True)
    assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (code, True, False), done.stderr

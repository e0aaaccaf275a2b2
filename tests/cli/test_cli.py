"""The command line as a person meets it: real processes, real signals, one clear sentence for every mistake."""

import fcntl
import gc
import inspect
import os
import pty
import re
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from commands import nothing_yet, refused, training, wait_until
from nights import PROJECT, SCRIPTS, Grounds, command, environment, git, make_repository, mounted, unigram

from agent.cli.main import COMMANDS, app_of, command_named, main
from agent.cli.options import NightOptions, RunOptions
from agent.experiment import Ending
from agent.night.lock import Stop
from agent.night.opening import free_tag
from agent.records.place import Place
from agent.script.contract import fixed_files

pytestmark = pytest.mark.usefixtures("own_cache")
ONE_RUN = ("--judge", "greedy")  # of each attempt: other judges have seeds of attempt 0 tell them the noise first

RESULTS_PAGE = (PROJECT / "docs" / "results.md").read_text()


def test_a_night_from_the_command_line_and_what_it_can_be_asked(grounds, tmp_path):
    night = grounds.nightshift("run", "--experiments", "1", "--budget-s", "0.2", "--tag", "t")
    assert night.returncode == 0, night.stderr
    for part in (
        "night t on branch experiments/0.2s-t",
        "#0 · baseline · val_bpb",
        "#1 · ",
        "  ideas    mix: search, catalogue, queue\n",
        "  #1   ",
        "  nightshift show ",
    ):
        assert part in night.stdout
    assert [row["attempt"] for row in grounds.rows()] == ["0", "1"]
    assert (grounds.root / "experiments" / "nights" / ".gitignore").read_text() == "*\n"
    assert grounds.git("status", "--porcelain") == "?? results.tsv"

    status = grounds.nightshift("status").stdout
    assert "night t: not running" in status
    assert "2 attempts" in status
    assert "baseline" in grounds.nightshift("results").stdout
    shown = grounds.nightshift("show", "1").stdout
    assert grounds.attempts("t")[1].proposal.hypothesis[:40] in shown
    assert "refs/experiments/t/0001" in shown
    edit = grounds.nightshift("show", "1", "--diff").stdout.splitlines()
    assert [line[:1] for line in edit if line[:1] in "+-" and line[:3] not in ("+++", "---")].count("+") in (1, 2, 3)
    assert grounds.nightshift("report", "--png", str(tmp_path / "p.png")).returncode == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")

    (grounds.root / "results.tsv").unlink()
    assert "baseline" in grounds.nightshift("results").stdout  # rendered anew
    assert "night t has --budget-s 0.2, not 0.3" in refused(
        grounds.nightshift("run", "--tag", "t", "--budget-s", "0.3")
    )
    assert "has no attempt 9; there are: 0 to 1" in refused(grounds.nightshift("show", "9"))

    (grounds.root / "inner").mkdir()
    (grounds.root / "inner" / "other.py").write_text(unigram())
    below = subprocess.run(
        command("run", "--tag", "t", "--script", "other.py"),
        cwd=grounds.root / "inner", env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "works on train_mlx.py, not inner/other.py; pass --script ../train_mlx.py" in below.stderr


def test_the_first_signal_ends_after_the_run_and_the_second_ends_the_run(grounds):
    night = grounds.start("run", *ONE_RUN, "--budget-s", "0.6", "--tag", "t")
    wait_until(training(grounds, "t"))
    night.terminate()
    assert "nightshift run --tag t  go on" in night.communicate(timeout=120)[0]
    assert night.returncode == 0
    assert [(one.number, one.settled) for one in grounds.attempts("t")] == [(0, True)]

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
    assert "  data     /" in night.stdout
    assert "/elsewhere" not in night.stdout
    assert [run.ending for run in grounds.attempts("t")[1].runs] == [Ending.STOPPED, Ending.FINISHED]
    assert [row["attempt"] for row in grounds.rows()] == ["0", "1"]


@pytest.mark.slow
def test_a_closed_terminal_ends_the_night_after_its_run(grounds):
    outer, inner = pty.openpty()
    night = subprocess.Popen(
        command("run", *ONE_RUN, "--budget-s", "0.6", "--tag", "t"),
        cwd=grounds.root,
        env=environment(TERM="xterm"),
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(inner)
    wait_until(training(grounds, "t"))
    os.read(outer, 1 << 16)
    os.close(outer)  # SIGHUP, and every word to the terminal is an error from here on
    assert night.wait(timeout=120) == 0
    assert [(one.number, one.settled) for one in grounds.attempts("t")] == [(0, True)]


def test_nohup_is_heeded(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = Stop(tmp_path)
        with stop.on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.after_run
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_night_goes_on_when_nobody_reads_what_it_says(grounds):
    night = grounds.start("run", *ONE_RUN, "--experiments", "1", "--budget-s", "0.3", "--tag", "t")
    night.stdout.readline()
    night.stdout.close()
    assert night.wait(timeout=120) == 0
    assert [one.settled for one in grounds.attempts("t")] == [True, True]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_a_signal_while_data_are_prepared_leaves_nothing_running(grounds, tmp_path, monkeypatch, number, code):
    monkeypatch.delenv("NIGHTSHIFT_DATA")
    night = subprocess.Popen(
        command("run"),
        cwd=grounds.root,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: list((tmp_path / "cache" / "data").glob("*")))
    family = psutil.Process(night.pid).children(recursive=True)
    if number == signal.SIGINT:
        os.killpg(night.pid, number)  # as a terminal does
    else:
        night.terminate()
    said = night.communicate(timeout=120)[0]
    assert night.returncode == code, said
    assert "Traceback" not in said
    assert [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []


def test_stop_and_a_second_night_meet_the_first(grounds):
    night = grounds.start("run", "--budget-s", "20", "--tag", "first")
    wait_until(training(grounds, "first"))
    second = refused(grounds.nightshift("run", "--tag", "second"))
    assert second.startswith(f"night first (pid {night.pid}) is running in this repository")
    assert not grounds.folder("second").exists()
    assert f"night first: running (pid {night.pid})" in grounds.nightshift("status").stdout
    assert "no results yet" in nothing_yet(grounds.nightshift("results"))
    assert not (grounds.root / "results.tsv").exists()  # the night itself writes it
    assert "after what it runs now" in grounds.nightshift("stop").stdout
    assert "ends after what runs now" in grounds.nightshift("status").stdout
    time.sleep(0.3)
    assert night.poll() is None
    assert "ends now" in grounds.nightshift("stop", "--now").stdout
    night.communicate(timeout=10)
    assert night.returncode == 0
    assert "no night is running" in nothing_yet(grounds.nightshift("stop"))


@pytest.mark.slow
def test_tags_of_the_day_follow_one_another(grounds):
    today = time.strftime("%b%d").lower()
    prepare = grounds.root / "prepare.py"
    prepare.write_text(prepare.read_text().replace("TIME_BUDGET_S = 300", "TIME_BUDGET_S = 0.05"))
    assert grounds.nightshift("run", *ONE_RUN, "--experiments", "1").returncode == 0
    assert {(row["tag"], row["branch"]) for row in grounds.rows()} == {(today, f"experiments/0.05s-{today}")}
    assert free_tag(Place.of(grounds.root / "train_mlx.py"), today) == f"{today}-2"


def test_the_record_stays_out_of_commits_by_the_command_of_its_page(grounds):
    (grounds.root / "results.tsv").write_text("")
    grounds.git("add", "results.tsv")
    grounds.git("commit", "-q", "-m", "the record")
    hide, show = re.findall(r"^ +git (update-index --(?:no-)?skip-worktree results\.tsv)", RESULTS_PAGE, re.MULTILINE)
    grounds.git(*hide.split())
    grounds.try_scripts("t", [])
    assert len(grounds.rows()) == 1
    assert grounds.git("status", "--porcelain") == ""
    grounds.git(*show.split())
    assert grounds.git("status", "--porcelain") == "M results.tsv"


# ---- bad input ----


def test_a_question_in_a_folder_without_nights_is_answered_without_words_of_git(tmp_path):
    for question in (["status"], ["results"], ["show", "0"], ["stop"], ["report", "--png", "p.png"]):
        said = refused(Grounds(tmp_path).nightshift(*question))
        assert f"no night has run in {tmp_path}; go to the folder of your script" in said
        assert said.endswith("begin with: nightshift init")
        assert not re.search(r"\bgit\b|repository|commit", said.replace(str(tmp_path), ""))


def script(text: str) -> Callable[[Path], object]:
    return lambda root: (root / "train_mlx.py").write_text(text)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda root: (root / "train_mlx.py").unlink(), "train_mlx.py does not exist; run from the folder of your"),
        (lambda root: (root / "train_mlx.py").write_bytes(b"\xff\xfe"), "cannot be read as a UTF-8 text file"),
        (script("def main():\n    pass\n\ndef load_model(:\n"), "train_mlx.py line 4 does not parse: "),
        (script("def load_model(path): ...\n"), "train_mlx.py breaks the contract: define main(), which trains"),
        (script("def main(): ...\n"), "train_mlx.py breaks the contract: define load_model(), which returns"),
        (script(unigram().replace("[0.1, 2.0]", "[0.1, 2.O]")), "line 14: the range '[0.1, 2.O]' of dial SHARPNESS"),
        (script((SCRIPTS / "weightless.py").read_text()), "the script has no dial with a range"),
        (lambda root: (root / "prepare.py").unlink(), "prepare.py is missing, and every run needs it; add"),
        (lambda root: (root / "prepare.py").write_text("import nowhere"), "'nowhere'; install the missing package"),
        (lambda root: git(root, "branch", "experiments"), "a branch called 'experiments' is in the way"),
    ],
)  # fmt: skip
def test_a_repository_unfit_for_a_night(grounds, spoil, sentence):
    spoil(grounds.root)
    assert sentence in refused(grounds.nightshift("run", "--experiments", "1", "--budget-s", "0.05"))
    assert not (grounds.root / "results.tsv").exists()
    assert not (grounds.root / "experiments").exists()
    assert grounds.git("for-each-ref", "refs/experiments") == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--tag", "a b"], "'a b' is no tag; use letters"),
        (["--tag", "../up"], "'../up' is no tag; use letters"),
        (["--tag", "seen"], "tag seen is taken by refs or ledger rows whose journal is not here; use --tag seen-2"),
        (["--tag", "old"], "tag old is taken by refs or ledger rows whose journal is not here; use --tag old-2"),
        (["--script", "nowhere/train_mlx.py"], "nowhere is not a folder"),
        (["--script", "other.py"], "other.py does not exist"),
    ],
)
def test_options_that_do_not_fit(grounds, options, sentence):
    grounds.git("update-ref", "refs/heads/experiments/5min-seen", "HEAD")
    (grounds.root / "results.tsv").write_text(
        "commit\tval_bpb\n" + "\t".join(["0000000", "1.0", *["x"] * 4, "old", *["x"] * 13])
    )
    assert sentence in refused(grounds.nightshift("run", *options))


@pytest.mark.parametrize(
    "options",
    [
        ("--budget-s", "0"),
        ("--budget-s", "nan"),
        ("--hours", "-1"),
        ("--experiments", "0"),
        ("--seed", "-1"),
        ("--seed", "4294967296"),
    ],
)
def test_numbers_that_are_none(grounds, options):
    said = refused(grounds.nightshift("run", *options))
    assert said.startswith("Invalid value ")
    assert f" for {options[0]}. " in said
    assert said.endswith("; see: nightshift run --help")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "prepare"])
def test_every_command_explains_its_options_and_refuses_others_in_one_sentence(name, capsys):
    assert main((name, "--help")) == 0
    shown = capsys.readouterr().out
    docs = "\n".join(inspect.getdoc(one) or "" for one in (command_named(name), NightOptions, RunOptions))
    for option in app_of(command_named(name), name).assemble_argument_collection():
        if option.show and not option.children:
            assert not option.names[0].startswith("--") or option.names[0] in shown
            assert option.parameter.help or re.search(rf"(?m)^    {option.field_info.names[0]}: ", docs), option.names
    assert main((name, "--ba-nana")) == 2
    said = capsys.readouterr().err
    assert said.startswith("nightshift: ")
    assert said.count("\n") == 1


def test_files_that_cannot_be_used_are_named(grounds, tmp_path):
    (tmp_path / "file").write_text("no folder")
    cache = refused(grounds.nightshift("run", NIGHTSHIFT_CACHE=str(tmp_path / "file"), NIGHTSHIFT_DATA=""))
    assert str(tmp_path / "file") in cache
    assert "Not a directory" in cache
    (grounds.root / "results.tsv").mkdir()
    assert "results.tsv: Is a directory; check its path" in refused(grounds.nightshift("run", "--tag", "t"))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not Path("/proc/mounts").exists(), reason="mounts a disk")
def test_a_repository_that_cannot_be_written(tmp_path):
    with mounted(tmp_path / "disk", "size=2g") as disk:
        grounds = Grounds(make_repository(disk / "user", unigram()))
        night = ("run", *ONE_RUN, "--tag", "t", "--experiments", "1", "--budget-s", "0.05")
        assert grounds.nightshift(*night).returncode == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert "Read-only file system; check its path, owner" in refused(grounds.nightshift("run", "--tag", "new"))
        assert "make it and its folder readable and writable" in refused(grounds.nightshift("run", "--tag", "t"))
        gc.collect()  # the error's traceback holds the journal open, which keeps the disk mounted


def test_data_that_is_not_there(grounds, tmp_path):
    assert "no whole corpus in" in refused(grounds.nightshift("run", NIGHTSHIFT_DATA=str(tmp_path)))


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/proc/mounts").exists(), reason="mounts a small disk")
def test_a_disk_without_space(tmp_path):
    with mounted(tmp_path / "small", "size=8m") as small:
        grounds = Grounds(make_repository(small / "user", unigram()))
        assert "GB are free on the disk" in refused(grounds.nightshift("run"))
        assert grounds.nightshift("doctor").returncode == 1


def test_doctor_says_what_is_there(grounds):
    done = grounds.nightshift("doctor")
    for part in ("✓ Python 3", "✓ MLX build: mlx", "✓ device: ", "GFLOP/s", "✓ kernels: compiled", "✓ git repository"):
        assert part in done.stdout
    assert "✓ disk" in done.stdout
    assert "✓ data: " in done.stdout
    assert done.returncode == 0


def test_doctor_is_not_ready_for_a_night_without_a_script_and_takes_one_elsewhere(grounds):
    (grounds.root / "inner").mkdir()
    (grounds.root / "train_mlx.py").rename(grounds.root / "inner" / "other.py")
    for name in fixed_files(PROJECT, unigram()):
        (grounds.root / "inner" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PROJECT / name, grounds.root / "inner" / name)
    missing = grounds.nightshift("doctor")
    assert f"✗ script: {grounds.root}/train_mlx.py does not exist" in missing.stdout
    assert missing.stderr.endswith("not ready for a night: see script\n")
    assert missing.returncode == 1
    there = grounds.nightshift("doctor", "--script", "inner/other.py")
    assert there.stdout.endswith("begin with: nightshift run --script inner/other.py\n")
    assert there.returncode == 0


def test_doctor_misses_a_compiler(grounds, tmp_path):
    done = grounds.nightshift("doctor", CC="/bin/false", NIGHTSHIFT_CACHE=str(tmp_path))
    assert "! kernels: none of our own, plain MLX trains: install a C compiler such as gcc" in done.stdout

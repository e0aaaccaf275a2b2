"""No process of a supervised command survives it, and no secret reaches it."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from nights import PROJECT, SCRIPTS

from agent.experiment import Ending
from agent.lab.hardware import usable_cores
from agent.sandbox.environment import SETTINGS, scrubbed_env
from agent.sandbox.process import Outcome, supervise
from agent.sandbox.supervisor import GRACE_S


def run(folder: Path, *command: str, limit_s: float = 30.0, **options: object) -> Outcome:
    settings = {"stopped": lambda: False, "env": scrubbed_env("/data")} | options
    return supervise([sys.executable, *command], folder, limit_s=limit_s, **settings)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)
    return path.read_text()


def test_an_exit_code_comes_through(tmp_path):
    outcome = run(tmp_path, str(SCRIPTS / "diverges.py"))
    assert (outcome.ending, outcome.exit_code) == (Ending.CRASHED, 3)
    assert outcome.last_lines == "loss is nan at step 17: the run has diverged"


def test_a_signal_keeps_its_number(tmp_path):
    for number in (signal.SIGSEGV, signal.SIGKILL):
        outcome = run(tmp_path, "-c", f"import os; os.kill(os.getpid(), {number:d})")
        assert (outcome.ending, outcome.exit_code) == (Ending.CRASHED, -number)


def test_a_run_whose_supervisor_was_killed_is_no_crash_of_the_script(tmp_path):
    outcome = run(tmp_path, "-c", f"import os, time; os.kill(os.getppid(), {signal.SIGKILL:d}); time.sleep(60)")
    assert (outcome.ending, outcome.why_invalid) == (Ending.CRASHED, "its supervisor was killed")


def test_a_log_holds_no_commands_to_the_terminal_that_shows_it(tmp_path):
    outcome = run(
        tmp_path, "-c", r"print('\x1b[2J\x1b]0;title\x07 \u202e tschüß \udc80'.encode('utf-8', 'replace').decode())"
    )
    assert outcome.last_lines == r"\x1b[2J\x1b]0;title\x07 \u202e tschüß ?"


def test_an_overrun_that_ignores_sigterm_is_killed_with_its_daemon(tmp_path):
    outcome = run(tmp_path, str(SCRIPTS / "hangs.py"), limit_s=1.0)
    daemon = int((tmp_path / "daemon.pid").read_text())
    assert outcome.ending is Ending.OVERRAN
    assert outcome.wall_s < 1.0 + GRACE_S + 2
    assert not is_alive(daemon)


CHAIN = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
links, until_s = 0, time.monotonic() + 20
if os.fork() == 0:
    os.setsid()
    while time.monotonic() < until_s:  # if nothing ends it
        if links % 100 == 0: open('links', 'a').write(100 * '.')  # whole or not at all, whenever it is killed
        links += 1
        if os.fork(): os._exit(0)
        time.sleep(PAUSE)
"""


def last_link(folder: Path) -> int:
    time.sleep(0.3)  # enough for hundreds
    return (folder / "links").stat().st_size


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt")
@pytest.mark.parametrize("pause_s", [pytest.param(0.0, marks=pytest.mark.slow), 0.001])
@pytest.mark.parametrize(("lasts_s", "limit_s", "ending"), [(1, 30, Ending.FINISHED), (60, 1.5, Ending.OVERRAN)])
def test_a_chain_of_forks_ends_and_leaves_no_zombies(tmp_path, pause_s, lasts_s, limit_s, ending):
    code = CHAIN.replace("PAUSE", str(pause_s)) + f"time.sleep({lasts_s})"
    zombies = []

    def count() -> None:
        states = [process.info["status"] for process in psutil.process_iter(["status"])]
        zombies.append(states.count(psutil.STATUS_ZOMBIE))

    outcome = run(tmp_path, "-c", code, limit_s=limit_s, tick=count)
    assert outcome.ending is ending
    assert outcome.wall_s < 1.5 + GRACE_S + 5
    reached = last_link(tmp_path)
    assert reached > 100
    assert last_link(tmp_path) == reached
    assert max(zombies) < 400


def test_stopping_ends_the_run_at_once(tmp_path):
    asked_s = time.monotonic() + 0.5
    outcome = run(tmp_path, "-c", "import time; time.sleep(60)", stopped=lambda: time.monotonic() > asked_s)
    assert outcome.ending is Ending.STOPPED
    assert outcome.wall_s < 5


def test_the_run_and_its_daemon_die_with_the_harness(tmp_path):
    harness = f"""
import sys; sys.path.insert(0, {str(PROJECT)!r})
from pathlib import Path
from agent.sandbox.environment import scrubbed_env
from agent.sandbox.process import supervise
supervise([sys.executable, {str(SCRIPTS / "hangs.py")!r}], Path({str(tmp_path)!r}), env=scrubbed_env(""),
          limit_s=99, stopped=lambda: False)
"""
    loop = subprocess.Popen([sys.executable, "-c", harness])
    daemon = int(wait_for(tmp_path / "daemon.pid"))
    family = [*psutil.Process(loop.pid).children(recursive=True), psutil.Process(daemon)]
    loop.kill()
    loop.wait()
    deadline = time.monotonic() + 2
    while any(is_alive(process.pid) for process in family) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [process for process in family if is_alive(process.pid)] == []


VANDALISM = {
    "reads only whole blocks": "fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)",
    "leads elsewhere": "os.remove('log.txt'); os.symlink('/dev/full', 'log.txt')",
    "is no more": "os.close(1); os.close(2); os.truncate('log.txt', 0)",
}


@pytest.mark.parametrize("deed", VANDALISM.values(), ids=VANDALISM)
def test_a_log_that_the_child_damages_holds_up_nobody(tmp_path, deed):
    outcome = run(tmp_path, "-c", f"import fcntl, os, time\nprint('words', flush=True)\n{deed}\ntime.sleep(0.3)")
    assert (outcome.ending, outcome.exit_code) == (Ending.FINISHED, 0)
    assert outcome.last_lines in ("", "words")


@pytest.mark.parametrize(
    "deed", ["while True: print('x' * 100_000)", "os.truncate('log.txt', 1 << 40); time.sleep(20)"]
)
def test_a_run_whose_log_grows_without_end_is_ended(tmp_path, deed):
    outcome = run(tmp_path, "-c", f"import os, time\n{deed}")
    assert (outcome.ending, outcome.last_lines) == (Ending.EXCEEDED, "its log has more than 64 MB: it must print less")


ENVIRONMENTS = """
import json, os
first = open(f'/proc/{os.getppid()}/environ').read() if os.path.exists('/proc') else ''
print(json.dumps([dict(os.environ), first]))
"""


def test_keys_do_not_reach_the_run(tmp_path, monkeypatch):
    """No name is the beginning of one that passes: only whole names that are listed do."""
    beginnings = ("", "LC_", "MLX_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "OPENBLAS_", "MKL_", "NIGHTSHIFT_", "PYTHON")
    ends = ("PASS", "HF_AUTH", "DSN", "SECRET", "API_KEY", "TOKEN", "URL", "PROXY", "CREDENTIALS", "LOGIN", "PIN", "X")
    listed = ("http_proxy", "HTTPS_PROXY", "ALL_PROXY", "PIP_INDEX_URL", "SSH_AUTH_SOCK", "DATABASE_URL", "LD_PRELOAD")
    languages = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")
    for name in (*(beginning + end for beginning in beginnings for end in ends), *listed, *languages):
        monkeypatch.setenv(name, "https://user:secret@example.org" if name != "LC_ALL" else "C.secret")
    for name in ("MLX_PTX_CACHE_DIR", *SETTINGS):
        monkeypatch.setenv(name, "/cache")
    run(tmp_path, "-c", ENVIRONMENTS)
    seen, supervisors = json.loads((tmp_path / "log.txt").read_text())
    assert [name for name, value in seen.items() if "secret" in value] == []
    assert "secret" not in supervisors
    assert {name: seen[name] for name in SETTINGS} == dict.fromkeys(SETTINGS, "/cache")
    assert (seen["NIGHTSHIFT_DATA"], seen["MLX_PTX_CACHE_DIR"], seen["PATH"]) == ("/data", "/cache", os.environ["PATH"])


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_run_has_no_input_no_terminal_and_no_open_files(tmp_path):
    with (tmp_path / "private").open("w"):
        code = "import os, sys; print([sys.stdin.read()], sys.stdout.isatty(), sorted(os.listdir('/proc/self/fd')))"
        outcome = run(tmp_path, "-c", code)
    assert outcome.last_lines == "[''] False ['0', '1', '2', '3']"  # the last is listdir's own


# ---- the clock beside other programs ---------------------------------------------------------------------------------


IN_ITS_OWN_WAY = """
import os, time
if all(os.fork() for _ in range(8 * len(os.sched_getaffinity(0)))):
    time.sleep(60)
while True: pass
"""

BY_SHORT_THREADS = """
import hashlib, os, threading
cores = len(os.sched_getaffinity(0))
for _ in range(2 * cores):
    if not os.fork():
        os.nice(19)
        while True: pass
def work(): hashlib.pbkdf2_hmac("sha256", b"", b"", 150_000)
def chain():
    while True:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
for _ in range(cores): threading.Thread(target=chain).start()
"""


@pytest.mark.slow
def test_a_limit_leaves_out_what_other_programs_took(tmp_path, busy_machine):
    outcome = run(tmp_path, "-c", "while True: pass", limit_s=3.0, is_fair=True)
    assert outcome.ending is Ending.OVERRAN
    assert outcome.wall_s > 4
    assert outcome.others_share is not None
    assert outcome.others_share > 0.3


def processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
def test_a_script_gains_no_time_by_processes_of_its_own(tmp_path, busy_machine):
    """They stand in queues for 15/16 of their time at least, most of it for each other."""
    check_what_others_took(tmp_path, IN_ITS_OWN_WAY)


@pytest.mark.slow
def test_a_script_gains_no_time_by_threads_that_end_before_they_are_seen(tmp_path):
    check_what_others_took(tmp_path, BY_SHORT_THREADS)


def check_what_others_took(folder: Path, script: str) -> None:
    before_s = processor_s()
    outcome = run(folder, "-c", script, limit_s=3.5, is_fair=True)
    others = 1 - (processor_s() - before_s) / (usable_cores() * outcome.wall_s)
    assert outcome.ending is Ending.OVERRAN
    assert outcome.others_share == pytest.approx(others, abs=0.2)

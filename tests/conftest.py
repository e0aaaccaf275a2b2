"""Define the fixtures of all tests."""
# ruff: noqa: E402

from __future__ import annotations

import gc
import locale
import os
import re
import shutil
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

# What a user has set of language, time zone, terminal, Python and git changes no test, and no process of one. Git knows
# nobody then, as in a fresh home. PYTHONPATH may be where MLX is found, and GIT_SSL_CAINFO what a machine needs.
OF_THE_USER = r"LANG(UAGE)?|LC_.*|TZ|COLUMNS|LINES|(NO|FORCE)_COLOR|TTY_.*|PYTHON(?!PATH$|HOME$).*|GIT_(?!SSL_).*"
for name in [name for name in os.environ if re.fullmatch(OF_THE_USER, name)]:
    del os.environ[name]
os.environ |= {"TERM": "xterm", "TZ": "UTC", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
time.tzset()
os.umask(0o022)
with suppress(locale.Error):  # the processes of tests find UTF-8 by themselves where no language is set
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
# Hundreds of short processes follow, and half of their start is the compiler's where no bytecode was kept: installers
# leave none, and $PYTHONDONTWRITEBYTECODE, which containers like to set, has every process compile again.
sys.dont_write_bytecode = False
# All products are small here, and threads that wait for a share of one take four times what it takes without them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The sign of `uv run`, which may have started the tests: printed commands would begin with it.
os.environ.pop("UV_RUN_RECURSION_DEPTH", None)

import pytest
from busy import beside
from filelock import FileLock
from nights import BROKEN, Grounds, make_repository, unigram

import prepare
from agent.lab import corpus, hardware
from agent.sandbox import places

hardware.tune()  # MLX must not be imported yet

# A shell's background job, and nohup, leave these ignored for all processes below, whose answers to them are tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# 544 rows: enough for one process to be asked for a whole audit, and one more costs every kept attempt half a second
TEST_SCALE = corpus.Scale("test", seq_len=64, vocab_size=512, eval_tokens=544 * 64)

# Files go to whichever worker is free; by default those with few tests come last, and among them are the longest of
# README's command.
LONGEST = (
    *("confirming", "cli", "night", "try", "cheats", "night_file", "ideas", "in_parallel", "sandboxes", "train_script"),
    *("chat", "charts", "process", "mcp", "limits_of_machine", "sampling", "prepare", "command", "serve", "pace"),
)
# What these import takes seconds, in each worker that has one of them: a group stays in one worker.
TOGETHER = {
    **dict.fromkeys(("chat", "endpoint", "keys", "llm", "proxies"), "the SDKs of language models"),
    **dict.fromkeys(("charts", "report_command"), "what draws"),
    **dict.fromkeys(("corpus", "prepare", "tables"), "pandas, which pyarrow asks for"),
    **dict.fromkeys(("agent_pages", "help", "hostile_words", "json", "mcp", "numbers"), "the SDK of MCP"),
}


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give each worker one file after another, or a group of files."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope

    def file_or_group(nodeid: str) -> object:
        file = file_of(nodeid)
        return TOGETHER.get(Path(file).stem.removeprefix("test_"), file)

    scheduler._split_scope = file_or_group
    return scheduler if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among tests and modules, which stay to the end: that took two seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path.name, len(first)))


def write_library_text(path: Path, chars: int) -> Path:
    """Write text that every machine has into one .txt file: the standard library's top-level modules."""
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    path.write_text("\n\n".join(module.read_text(errors="replace") for module in modules)[:chars])
    return path


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that one worker makes for all; none of their tests may change it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            make(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare a small corpus for $NIGHTSHIFT_DATA: sequences of 64, 512 tokens, 1.5 MB of text."""

    def make(folder: Path) -> None:
        text = write_library_text(folder / "library.txt", chars=1_500_000)
        prepare.prepare(str(text), TEST_SCALE, cache=folder / "cache", workers=1)

    (data,) = made_once(tmp_path_factory, "tiny_data", make).glob("cache/data/library-*")
    return data


@pytest.fixture(scope="session")
def trained_night(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Path:
    """Return a user's repository, to be copied, with a night of four attempts: the baseline, two gains, a crash."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
            grounds = Grounds(make_repository(folder / "user", unigram()))
            grounds.try_scripts("t", [unigram(SHARPNESS=0.7), unigram(SHARPNESS=0.9), BROKEN])
            shutil.rmtree(grounds.folder("t") / "warm")  # 30 MB of compiled code

    return made_once(tmp_path_factory, "trained_night", make) / "user"


@pytest.fixture(autouse=True)
def places_of_this_test() -> None:
    """Have each test look for what a sandbox shows: another may have pretended a different machine."""
    places.system_places.cache_clear()
    places.python_places.cache_clear()


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Have other programs compute on every core, three on each."""
    if not Path("/proc/self/schedstat").exists() or hardware.device_kind() != "cpu":
        pytest.skip("a budget is wall time here")
    with beside(3 * hardware.usable_cores()):
        yield


@pytest.fixture
def own_cache(tmp_path: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the small corpus, and a cache of this test alone, except for compiled code, which takes a second to make."""
    for folder in ("blas", "kernels"):
        shared = hardware.cache_root() / folder
        shared.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache").mkdir(exist_ok=True)
        (tmp_path / "cache" / folder).symlink_to(shared)
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def grounds(tmp_path: Path, own_cache: None) -> Grounds:
    """Make a user's repository with a script that trains in an instant."""
    return Grounds(make_repository(tmp_path / "user", unigram()))


@pytest.fixture
def trained(tmp_path: Path, own_cache: None, trained_night: Path) -> Grounds:
    """Copy the repository of trained_night for this test alone, whose night may go on."""
    return Grounds(Path(shutil.copytree(trained_night, tmp_path / "user", symlinks=True)))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, driven by Playwright; a test is skipped where either is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright comes with uv run --group proofs")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("there is no Chromium here; install it: apt-get install -y chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        yield chromium
        chromium.close()

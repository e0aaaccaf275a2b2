"""A night in its box catches cheating scripts and accepts honest ones; benchmarks/cheats.py tries all of them."""

import os
import socket

import pytest
from arena import BASE, CHEATS, HONEST, KNOWN, Script, Server, Told, Trial, World, loot, try_all, world
from nights import PROJECT, environment, python_path

from agent.sandbox.box import Mode, choose
from agent.script.contract import check_script
from agent.script.dials import fingerprint

EVERY = (*CHEATS, *HONEST, *KNOWN)
# `python benchmarks/cheats.py --quick` tries one of each kind
TOLD_APART = ("peeks_at_1_in_1000", "writes_outside", "computes_in_bfloat16")
QUICK_BASE = BASE.replace("STEPS = 80", "STEPS = 20")


@pytest.mark.parametrize("script", EVERY, ids=lambda script: script.name)
def test_every_script_is_whole_and_says_what_it_does(script: Script):
    check_script(script.compose({}), script.name)
    assert script.tries.endswith(".")
    assert "\n" not in script.tries


def test_there_are_many_and_no_two_are_the_same():
    assert len(CHEATS) >= 24
    assert len(HONEST) >= 12
    assert len({script.name for script in EVERY}) == len(EVERY)
    assert len({fingerprint(script.compose({})) for script in EVERY}) == len(EVERY)


@pytest.fixture(scope="module")
def trials(tmp_path_factory, tiny_data) -> dict[str, Trial]:
    """Run two cheats and an honest script in one night."""
    box = choose(Mode.AUTO)
    if box.name.startswith("no sandbox"):
        pytest.skip(box.name)
    scripts = [script for script in EVERY if script.name in TOLD_APART]
    with world(tmp_path_factory.mktemp("cheats") / "world", tiny_data, base=QUICK_BASE, champion=False) as here:
        return {trial.script.name: trial for trial in try_all(here, scripts, box, Told())}


@pytest.mark.parametrize("name", TOLD_APART)
def test_cheats_come_to_nothing_and_honest_scripts_are_kept(trials, name):
    trial = trials[name]
    assert trial.effects == ()
    assert (trial.status == "keep") == trial.script.is_honest, trial.reason


def test_what_cheats_about_the_score_is_found_by_the_audit(trials):
    found = {name for name, trial in trials.items() if trial.how == "audit"}
    assert found == {"peeks_at_1_in_1000"}


def test_what_a_script_left_in_place_of_its_log_holds_nobody_up(tmp_path):
    here = World(tmp_path, "token", "canary", tmp_path, Server(0), "")
    for seed, leave in enumerate((os.mkfifo, lambda path: path.write_text("LOOT: a word\nwith a canary\n"))):
        folder = here.night / "runs" / "0001" / f"seed{seed}"
        folder.mkdir(parents=True)
        leave(folder / "log.txt")
    assert loot(here, 1) == ["seed1: LOOT: a word", "a key in seed1"]


def test_what_is_found_through_pythonpath_is_found_by_subprocesses_as_well(monkeypatch):
    """On a CUDA machine, MLX itself may be found that way."""
    monkeypatch.setenv("PYTHONPATH", "/where/mlx/lies")
    assert python_path(PROJECT) == environment()["PYTHONPATH"] == f"{PROJECT}{os.pathsep}/where/mlx/lies"
    monkeypatch.delenv("PYTHONPATH")
    assert python_path(PROJECT) == environment()["PYTHONPATH"] == str(PROJECT)


def test_the_server_would_hear_who_gets_out(tmp_path):
    with Server.listening("127.0.0.1", "nightshift-test", tmp_path) as server:
        socket.create_connection(("127.0.0.1", server.port)).close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.sendto(b"words", ("127.0.0.1", server.port))
    assert sorted(server.heard) == [f"a call to ('127.0.0.1', {server.port})", "b'words'"]

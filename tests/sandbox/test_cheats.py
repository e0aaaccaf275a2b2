"""A night in its sandbox catches cheating scripts and accepts honest ones; benchmarks/cheats.py tries all of them."""

import fnmatch
import re
from pathlib import Path

import pytest
from arena import BASE, CHEATS, HONEST, KNOWN, Script, Trial, try_all, world

from agent.sandbox.sandboxes import choose
from agent.script.contract import check_script
from agent.script.dials import fingerprint

EVERY = (*CHEATS, *HONEST, *KNOWN)
# `python benchmarks/cheats.py --quick` tries one of each kind
TOLD_APART = ("peeks_at_1_in_1000", "writes_outside", "computes_in_bfloat16")
QUICK_BASE = BASE.replace("STEPS = 80", "STEPS = 5")


@pytest.mark.parametrize("script", EVERY, ids=lambda script: script.name)
def test_every_script_is_whole_and_says_what_it_does(script: Script):
    check_script(script.compose({}), script.name)
    assert script.tries.endswith(".")


def test_there_are_many_and_no_two_are_the_same():
    assert len(CHEATS) >= 60
    assert len(HONEST) >= 20
    assert len({script.name for script in EVERY}) == len(EVERY)
    assert len({fingerprint(script.compose({})) for script in EVERY}) == len(EVERY)


def test_every_cheat_that_tests_a_promise_of_security_md_is_there():
    listed = re.findall(r"(?m)^\|.*cheats (`[a-z_].*) \|$", (Path(__file__).parents[2] / "SECURITY.md").read_text())
    patterns = {name for row in listed for name in re.findall(r"`([a-z_]+\*?)`", row)}
    assert {"reads_*", "survives", "hangs_in_scoring"} <= patterns
    assert [name for name in sorted(patterns) if not fnmatch.filter([script.name for script in EVERY], name)] == []


@pytest.fixture(scope="module")
def trials(tmp_path_factory, tiny_data) -> dict[str, Trial]:
    """Run two cheats and an honest script in one night."""
    sandbox = choose()
    if sandbox.name.startswith("no sandbox"):
        pytest.skip(sandbox.name)
    scripts = [script for script in EVERY if script.name in TOLD_APART]
    with world(tmp_path_factory.mktemp("cheats") / "world", tiny_data, base=QUICK_BASE, best=False) as here:
        return {trial.script.name: trial for trial in try_all(here, scripts, sandbox, lambda trial: None)}


@pytest.mark.parametrize("name", TOLD_APART)
def test_cheats_come_to_nothing_and_honest_scripts_are_kept(trials, name):
    trial = trials[name]
    assert trial.effects == ()
    assert (trial.status == "keep") == (trial.script.folder == "honest"), trial.reason

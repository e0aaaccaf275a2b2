"""A night in its box catches cheating scripts and accepts honest ones; benchmarks/cheats.py tries all of them."""

import pytest
from arena import BASE, CHEATS, HONEST, KNOWN, Script, Told, Trial, try_all, world

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

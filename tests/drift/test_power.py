"""A laptop on its battery or in a saving mode is said so, from what the system answers."""

from pathlib import Path

import pytest

from agent.drift.power import Power, parse_pmset, read_supplies

# As people have posted them: `pmset -g batt` and, of a MacBook Pro and of an Air, the end of `pmset -g`.
CELLS = " -InternalBattery-0 (id=4653155)\t{}; {} remaining present: true\n"
BATTERY = "Now drawing from 'Battery Power'\n" + CELLS.format("85%; discharging", "4:12")
MAINS = "Now drawing from 'AC Power'\n" + CELLS.format("100%; charged", "0:00")
DESKTOP = "Now drawing from 'AC Power'\n"
PRO = """System-wide power settings:
 SleepDisabled\t\t0
Currently in use:
 standby              1
 sleep                1 (sleep prevented by caffeinate)
 tcpkeepalive         1
 powermode            {}
 womp                 0
"""
AIR = "Currently in use:\n displaysleep         2\n lowpowermode         1\n"


def test_pmset_tells_battery_charge_and_mode():
    assert parse_pmset(BATTERY, PRO.format(0)) == Power(on_battery=True, percent=85, mode="automatic")
    assert parse_pmset(MAINS, PRO.format(2)) == Power(on_battery=False, percent=100, mode="high power")
    assert parse_pmset(DESKTOP, AIR) == Power(on_battery=False, percent=None, mode="low power")
    assert parse_pmset("", "pmset: illegal option") == Power()


def test_mains_are_advised_where_the_battery_or_a_mode_slows_a_night_and_nothing_is_said_otherwise():
    assert Power(on_battery=True, percent=85, mode="automatic").words == "on battery at 85%"
    assert (Power(on_battery=True, percent=85, mode="low power").advice or "").endswith("; connect the charger")
    assert (parse_pmset(MAINS, AIR).advice or "").startswith("low power mode: runs get fewer steps")
    assert parse_pmset(MAINS, PRO.format(0)).advice is None
    assert Power().advice is None


@pytest.mark.parametrize(("status", "on_battery"), [("Discharging", True), ("Charging", False), ("Full", False)])
def test_linux_tells_it_by_the_battery_of_the_machine_and_not_by_that_of_a_mouse(tmp_path, status, on_battery):
    supply(tmp_path / "AC", type="Mains", online="1")
    supply(tmp_path / "A-hid-mouse", type="Battery", scope="Device", capacity="20", status="Discharging")
    supply(tmp_path / "BAT0", type="Battery", capacity="62", status=status)
    assert read_supplies(tmp_path) == Power(on_battery=on_battery, percent=62)


def test_a_machine_without_a_battery_has_nothing_to_say(tmp_path):
    supply(tmp_path / "AC", type="Mains", online="1")
    assert read_supplies(tmp_path) == read_supplies(tmp_path / "missing") == Power()


def supply(folder: Path, **facts: str) -> None:
    folder.mkdir()
    for name, fact in facts.items():
        (folder / name).write_text(f"{fact}\n")

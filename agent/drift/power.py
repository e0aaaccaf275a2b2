"""Read what gives a machine its power, since a laptop on its battery, or in a saving mode, trains more slowly.

A Mac is asked by pmset; this was never run on one. On Linux the kernel tells in /sys/class/power_supply.
"""

import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SUPPLIES = Path("/sys/class/power_supply")
ASKED_S = 5.0  # longest wait for pmset
MODES = {"0": "automatic", "1": "low power", "2": "high power"}  # of `powermode`; Macs with two modes: `lowpowermode`


@dataclass(frozen=True, slots=True)
class Power:
    """Hold where a machine's power comes from; None: not known, or it has no such thing."""

    on_battery: bool | None = None
    percent: int | None = None  # of the battery's charge
    mode: str | None = None  # one of MODES

    @classmethod
    def now(cls, supplies: Path = SUPPLIES) -> "Power":
        """Ask the system."""
        if sys.platform == "darwin":
            return parse_pmset(_asked("-g", "batt"), _asked("-g"))
        return read_supplies(supplies)

    @property
    def words(self) -> str | None:
        """Return it in a few words; None where nothing is known that slows a machine down."""
        percent = "" if self.percent is None else f" at {self.percent}%"
        battery = f"on battery{percent}" if self.on_battery else None
        return ", ".join(filter(None, (battery, f"{self.mode} mode" if self.mode == "low power" else None))) or None

    @property
    def advice(self) -> str | None:
        """Return what the user had better change before a night; None where nothing is."""
        if self.words is None:
            return None
        remedy = "connect the charger" if self.on_battery else "set the energy mode to automatic or high power"
        return f"{self.words}: runs get fewer steps, and fewer still when it changes; {remedy}"


def parse_pmset(battery: str, settings: str) -> Power:
    """Read the answers of `pmset -g batt` and of `pmset -g`, which lists the settings in use."""
    source = re.search(r"Now drawing from '([^']*)'", battery)
    percent = re.search(r"InternalBattery[^\n]*?(\d+)%", battery)
    mode = re.search(r"^\s*(powermode|lowpowermode)\s+([012])\b", settings, re.MULTILINE)
    return Power(
        on_battery=None if source is None else source[1] == "Battery Power",
        percent=None if percent is None else int(percent[1]),
        mode=None if mode is None else MODES[mode[2]],
    )


def read_supplies(supplies: Path) -> Power:
    """Read type, status and charge of the batteries that are the machine's own; a mouse's has the scope Device."""
    for supply in sorted(supplies.glob("*")):
        if _fact(supply / "type") == "Battery" and _fact(supply / "scope") != "Device":
            charge, status = _fact(supply / "capacity"), _fact(supply / "status")
            return Power(
                on_battery=None if status is None else status == "Discharging",
                percent=int(charge) if charge is not None and charge.isdecimal() else None,
            )
    return Power()


def _fact(file: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text().strip()
    return None


def _asked(*arguments: str) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        command = ["pmset", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=ASKED_S).stdout
    return ""

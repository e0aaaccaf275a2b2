"""The sandboxes that this machine has."""

import shutil

import pytest

from agent.sandbox import landlock
from agent.sandbox.box import Box, Bubblewrap, Landlock


def bubblewrap() -> Bubblewrap | str:
    program = shutil.which("bwrap")
    return Bubblewrap.on_this_kernel(program) if program else "bubblewrap is not installed"


def kernels_own() -> Landlock | str:
    return Landlock(landlock.abi()) if landlock.abi() else "this kernel has no Landlock with filters"


def usable(made: Box | str) -> Box:
    return pytest.skip(made) if isinstance(made, str) else made

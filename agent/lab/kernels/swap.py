"""Define @fast, which puts a kernel in the place of a script's operation while the script leaves that as it was."""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import mlx.core as mx

from agent.lab.kernels import twins
from agent.lab.kernels.device import kernel_device
from agent.lab.operations import OPERATIONS, unchanged

Operation = TypeVar("Operation", bound=Callable[..., Any])


class Fast:
    """Decorate the operations of a script: `@fast` returns the kernel of an operation, or the operation itself.

    The kernel runs only if the function, and every module-level name that it reads, all the way down, are written as in
    plain.py: an edit always wins. That is decided once, when the script is imported. Where its text cannot be read, or
    this device has no kernels, its own functions run.
    """

    def __init__(self) -> None:
        self._file: str | None = None
        self._same: dict[str, bool] = {}  # operation of that script → whether it is that of plain.py

    def __call__(self, operation: Operation) -> Operation:
        if kernel_device() is None or not isinstance(operation, FunctionType):  # mx.compile returns no function
            return operation
        file, name = operation.__code__.co_filename, operation.__qualname__
        if file != self._file:  # another script
            self._file, self._same = file, compared(file)
        twin: Operation = getattr(twins, name) if self._same.get(name) else operation
        return twin

    @property
    def plain(self) -> list[str]:
        """Return the operations of the script that have lost their kernel by an edit, in the order of a step."""
        return [name for name in OPERATIONS if self._same.get(name) is False]

    def runs(self, dtype: mx.Dtype) -> bool:
        """Return whether this device has kernels for activations of this dtype."""
        device = kernel_device()
        return device is not None and dtype == device.DTYPE


def compared(file: str) -> dict[str, bool]:
    """Return for each operation of the script in this file whether it is that of plain.py; never without its text."""
    try:
        return unchanged(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return dict.fromkeys(OPERATIONS, False)


fast = Fast()

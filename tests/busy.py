"""Other programs that compute meanwhile."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# It ends with the process that started it, also where that was killed.
BUSY = "import os\nstarter = os.getppid()\nwhile os.getppid() == starter: pass"


@contextmanager
def beside(processes: int) -> Iterator[None]:
    """Have as many other processes compute meanwhile, each in a session of its own.

    Where Linux shares its cores by sessions (autogroup), all processes of one session have the share of one.
    """
    command = [sys.executable, "-S", "-c", BUSY]
    others = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()

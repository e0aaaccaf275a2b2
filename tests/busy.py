"""Other programs that compute meanwhile."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# It ends with the process that started it, also where that was killed.
BUSY = "import os\nstarter = os.getppid()\nwhile os.getppid() == starter: pass"


@contextmanager
def beside(processes: int) -> Iterator[None]:
    """Have as many other processes compute meanwhile."""
    others = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()

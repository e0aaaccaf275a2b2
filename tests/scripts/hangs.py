"""Never ends, ignores SIGTERM, and leaves a daemon behind: forked twice, in a session of its own."""

import os
import signal
import sys
import time
from pathlib import Path


def load_model(weights_path: str) -> None:
    return None


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        Path("daemon.pid").write_text(str(os.getpid()))
        time.sleep(600)
    os.wait()
    print("hanging", file=sys.stderr)
    time.sleep(600)


if __name__ == "__main__":
    main()

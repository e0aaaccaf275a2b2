"""Start the broker and speak with it. It runs under the keeper, which ends all of its processes when it or we end."""

import os
import socket
import subprocess
import sys
from collections import deque
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from agent.files import throwaway_folder
from agent.pools.cluster.messages import FromBroker, ToBroker
from agent.sandbox.environment import scrubbed_env
from agent.sandbox.process import LOG, end, open_log, report_of, start_keeper

END_S = 6.0  # that the broker and a cluster of ours may take to end by themselves
SHORT = Path("/tmp")  # TMPDIR may be long, and the path of a socket of Ray has 107 bytes at most
LOG_BYTES = 10 << 20  # of each of Ray's own logs
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # it would send the working directory of `uv run` to every node
    "RAY_ROTATION_MAX_BYTES": str(LOG_BYTES),
    "RAY_ROTATION_BACKUP_COUNT": "1",
    "RAY_memory_monitor_refresh_ms": "0",  # the harness watches memory itself, and knows whose fault a shortage is
    "RAY_worker_niceness": "0",  # Ray's own is 15: other programs of the machine would go first
    "RAY_raylet_start_wait_time_s": "120",  # on a busy machine
    "RAY_num_workers_soft_limit": "1024",  # keep the processes of workers that wait: starting one takes a second
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",  # then the head is gone
}


class Link:
    """Hold one broker, from its start to its end."""

    def __init__(self, *, is_own_cluster: bool) -> None:
        self._undo = ExitStack()
        self.folder = self._undo.enter_context(throwaway_folder(SHORT))
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self.folder / "door"))
        self._door.listen()
        self._unsent: deque[ToBroker] = deque()
        self._connection: Connection | None = None
        with open_log(self.folder / LOG):
            command = [sys.executable, "-P", "-m", "agent.pools.cluster.broker", str(self.folder / "door")]
            env = environment(is_own_cluster=is_own_cluster)
            self._keeper = start_keeper(command, self.folder, env, None)

    def send(self, order: ToBroker) -> None:
        self._unsent.append(order)
        with suppress(OSError):  # receive() says that it is gone
            while self._connection is not None and self._unsent:
                self._connection.send(self._unsent.popleft())

    def receive(self, wait_s: float) -> list[FromBroker]:
        """Return what the broker has said; wait at most wait_s for the first. Raise EOFError if it has ended."""
        if self._connection is None:
            self._open_door(wait_s)
            return []
        found: list[FromBroker] = []
        try:
            while self._connection.poll(0 if found else wait_s):
                found.append(self._connection.recv())
        except (EOFError, OSError):
            if not found:
                raise EOFError from None
        return found

    def _open_door(self, wait_s: float) -> None:
        if wait([self._door], wait_s):
            guest, _ = self._door.accept()
            self._connection = Connection(guest.detach())
            if self._unsent:
                self.send(self._unsent.popleft())
        elif self._keeper.poll() is not None:
            raise EOFError

    @property
    def last_line(self) -> str:
        """Return the last line of the broker's log: why it has ended, if it did not say so itself."""
        log = (self.folder / LOG).read_text(errors="replace").strip().splitlines()
        return log[-1] if log else "it said nothing"

    def close(self) -> None:
        """End the broker and all of its processes."""
        self._door.close()
        if self._connection is not None:
            self._connection.close()  # its sign to end
            with suppress(subprocess.TimeoutExpired):
                self._keeper.wait(END_S)
        end(self._keeper)
        report_of(self._keeper)
        self._undo.close()


def environment(*, is_own_cluster: bool) -> dict[str, str]:
    """Return the environment of the broker, and of a cluster on this machine: no keys, and settings of Ray."""
    own = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(32).hex()} if is_own_cluster else {}
    path = os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return scrubbed_env(os.environ.get("NIGHTSHIFT_DATA", "")) | own | SETTINGS | token | {"PYTHONPATH": path}

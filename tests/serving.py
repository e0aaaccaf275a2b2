"""A night that grows by hand, and a real server on loopback that shows it."""

import contextlib
import dataclasses
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from commands import wait_until
from judged import decided, scored_run
from nights import make_repository, unigram
from samples import NIGHT

from agent.cli.report import drawn, night_now
from agent.clock import utc_now
from agent.experiment import Proposal, Status, attempt_ref, packed
from agent.night.limits import Limits
from agent.night.lock import only_night
from agent.records.journal import Journal
from agent.records.place import Place
from agent.view import serve
from agent.view.serve import Server
from agent.work import Doing, Work

PATIENCE_S = 120.0  # the server has the lowest priority: beside five busy processes it gets a hundredth of a core
PERIOD_S = 0.05  # so that no test waits for a second
AGAIN_S = 2.0  # between two loads of a page


@dataclass
class GrowingNight:
    """A night whose attempts come when a test says so."""

    place: Place
    tag: str
    journal: Journal
    attempts: int = 0

    def begin(self, title: str, why: str = "It may help.") -> int:
        """A committed attempt that has not run yet; its edit sets the sharpness."""
        number, self.attempts = self.attempts, self.attempts + 1
        script = unigram(SHARPNESS=1.0 + number)
        parent = None if number == 0 else 0
        self.journal.add_attempt(number, parent, Proposal(title, why, "search", packed=packed(script)), NIGHT.started)
        base = self.place.repo.find("HEAD") or ""
        commit = self.place.repo.commit_script(base, self.place.script, script, "an edit", NIGHT.started)
        self.journal.record_commit(number, commit)
        self.place.repo.move_ref(attempt_ref(self.tag, number), commit, None, "a test")
        return number

    def train(
        self, number: int, seed: int = 0, curve: str = "", log: bytes = b"", worker: str = "local"
    ) -> Callable[[float, Status], None]:
        """Begin a run that has left this curve and this log; return the function that ends it."""
        folder = self.place.folder(self.tag) / "runs" / f"{number:04d}" / f"seed{seed}"
        (folder / "out").mkdir(parents=True)
        (folder / "out" / "metrics.jsonl").write_text(curve)
        (folder / "log.txt").write_bytes(log)
        run = self.journal.start_run(number, seed, worker=worker)
        self.journal.begin(Work(worker, Doing.TRAINING, number, utc_now("milliseconds"), seed))

        def end(val_bpb: float, status: Status) -> None:
            done = scored_run(seed, val_bpb)
            self.journal.end_run(run, done)
            self.journal.rest(worker)
            self.journal.record_decision(number, decided(status, "as it is", 0.1, 0.9))

        return end

    def add(self, title: str, val_bpb: float = 1.5, status: Status = Status.DISCARD) -> int:
        number = self.begin(title)
        self.train(number)(val_bpb, status)
        return number


def points(*losses: float) -> str:
    return "".join(
        json.dumps({"progress": at / 10, "loss": loss, "tokens_s": 1234.5, "step": at}) + "\n"
        for at, loss in enumerate(losses)
    )


def make_place(folder: Path) -> Place:
    return Place.of(make_repository(folder, unigram()) / "train_mlx.py")


@contextlib.contextmanager
def growing_night(place: Place, tag: str) -> Iterator[GrowingNight]:
    """A night that counts as running until the end of the block."""
    night = dataclasses.replace(NIGHT, tag=tag, base=place.repo.find("HEAD") or "")
    with only_night(place.repo.common_dir) as tell, Journal.create(place.journal(tag), night) as journal:
        tell(tag, place.folder(tag), Limits(60, 8.0))
        yield GrowingNight(place, tag, journal)


@dataclass
class Client:
    """Asks a server over real connections, word by word."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
        """Status, headers and body of an answer. The path goes out as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers={**self.headers, **named})
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body

    def shows(self, *words: str) -> None:
        """Wait until the page has all these words."""

        def has_all() -> bool:
            page = self.ask("/")[2]
            return all(each in page for each in words)

        wait_until(has_all, PATIENCE_S)


@contextlib.contextmanager
def served(place: Place, tag: str | None = None) -> Iterator[Client]:
    """A server in a thread of this process: the same as the command's, without the second that a process takes."""
    with (
        patch.multiple(serve, SHARE=10.0, PERIOD_S=PERIOD_S),
        Server(0, lambda: drawn(*night_now(place, tag), AGAIN_S)) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield Client(server.port)
        finally:
            server.shutdown()
            thread.join()

"""The report page, live: nightshift serve."""

import argparse
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.cli.reading.scripts import latest_tag
from agent.cli.reading.which import place_meant
from agent.cli.words.parser import Subcommand
from agent.cli.words.values import whole
from agent.errors import NightError
from agent.night.lock import Holder, holder
from agent.records.place import Place

if TYPE_CHECKING:
    from agent.view.serve.feed import Watched

PORT, LAST_PORT = 8711, 65535
LOOK_AGAIN = 10  # readings after which all nights are compared again: each journal has to be opened for it
NICE = 10  # the night goes first where they share processors


@dataclass(frozen=True, slots=True)
class ServeOptions:
    tag: str | None
    port: int
    host: str
    token: str | None


def serve(options: ServeOptions) -> int:
    if not 0 <= options.port <= LAST_PORT:
        raise NightError(f"--port must be from 0 to {LAST_PORT}, and {options.port} is not; 0 takes any free one")
    # Imported here, since these packages take a while and no other command needs them.
    from agent.view.serve.address import Address, listen, token_for
    from agent.view.serve.app import application
    from agent.view.serve.feed import Feed
    from agent.view.serve.server import run

    token = token_for(options.host, options.token)
    place = place_meant(options.tag)
    feed = Feed(Newest(place, place.repo.common_dir, options.tag).watched)
    with listen(options.host, options.port) as listening:
        address = Address(options.host, listening.getsockname()[1], token)
        which = f"night {options.tag}" if options.tag else "the latest night"
        print(f"{which} is at {address.url}\nCtrl-C ends the server, and leaves the night alone", flush=True)
        os.nice(NICE)
        run(application(feed, address), listening)
    return 0


@dataclass
class Newest:
    """Find the night to show: the one that was named, else the one that runs, else the latest."""

    here: Place
    git_folder: Path
    tag: str | None
    _latest: str | None = field(default=None, init=False)
    _look_again_in: int = field(default=0, init=False)

    def watched(self) -> "Watched":
        """Return the night to show now; raise NightError where there is none."""
        from agent.view.serve.feed import Watched

        who = holder(self.git_folder)
        if who is not None and self.tag in (None, who.tag) and Path(who.folder, "journal.sqlite").is_file():
            self._look_again_in = 0  # once it has ended, it may or may not be the latest
            return Watched(self._place_of(who), who.tag, True, who.until, who.experiments)
        return Watched(self.here, self.tag or self._latest_tag(), False)

    def _place_of(self, who: Holder) -> Place:
        """Return this place, or the other working tree of the repository in which the night runs."""
        there = Path(who.folder)
        if there == self.here.folder(who.tag):
            return self.here
        return replace(self.here, repo=replace(self.here.repo, root=there.parents[2]))

    def _latest_tag(self) -> str:
        self._look_again_in -= 1
        if self._latest is None or self._look_again_in < 0:
            self._latest, self._look_again_in = latest_tag(self.here), LOOK_AGAIN
        return self._latest


def _serve_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("--tag", metavar="TAG", help="of this night (default: the latest)")
    words.add_argument("--port", type=whole, default=PORT, metavar="N", help="0: any free one (default: %(default)s)")
    words.add_argument(
        "--host", default="127.0.0.1", metavar="ADDR", help="0.0.0.0: for other machines too, which need a token"
    )
    words.add_argument("--token", metavar="T", help="that every request needs (default: a random one with --host)")


SERVE = Subcommand("serve", "the report as a live page on this machine", ServeOptions, serve, _serve_words)

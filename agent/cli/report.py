"""A night as a page for a browser: nightshift report, and nightshift serve, which keeps it up to date."""

import os
import webbrowser
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from agent.cli.find import latest_tag, place_meant
from agent.errors import NightError
from agent.files import write_plain
from agent.invocation import typed
from agent.night.lock import Holder, holder
from agent.records.place import Place
from agent.text import counted
from agent.view.page.writer import PAGE

if TYPE_CHECKING:
    from agent.view.serve import Watched

PORT = 8711
LOOK_AGAIN = 10  # readings after which all nights are compared again: each journal has to be opened for it
NICE = 10  # the night goes first where they share processors

# ---- report ----------------------------------------------------------------------------------------------------------


def report(tag: str | None = None, /, *, open: bool = False, out: Path | None = None, png: Path | None = None) -> None:
    """Write a page for a browser: what was tried, what helped, and how sure that is.

    Args:
        tag: the night (default: the latest)
        open: show it in a browser
        out: the file (default: report.html in the night's folder)
        png: draw the progress as a picture there, too: a .png file
    """
    from agent.records.reading import read_night
    from agent.view.page.extras import gather
    from agent.view.page.page import page, picture

    if png is not None and png.suffix.lower() != ".png":
        raise NightError(f"--png must end in .png, and {png} does not")
    place = place_meant(tag)
    night = read_night(place, tag or latest_tag(place))
    path = out or place.folder(night.tag) / PAGE
    _write(path, page(night, gather(place, night)), is_own=out is None)
    print(f"wrote {path}: {night.tag}, {counted(len(night.attempts), 'attempt')}")
    if png is not None:
        _write(png, picture(night))
        print(f"wrote {png}")
    if open and not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser can be opened here; open {path.resolve()} in one")


def _write(path: Path, content: str | bytes, *, is_own: bool = False) -> None:
    if path.is_dir():
        raise NightError(f"{path} is a folder; name a file, as in {typed('report', '--out', str(path / PAGE))}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        if is_own and path.is_symlink():  # in a night's folder: a clone may bring one
            path.unlink(missing_ok=True)
        write_plain(path, content)
    else:
        path.write_bytes(content)


# ---- serve -----------------------------------------------------------------------------------------------------------


def serve(
    tag: str | None = None,
    /,
    *,
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = PORT,
) -> None:
    """Serve the report as a live page on this machine.

    Args:
        tag: of this night (default: the latest)
        port: 0: any free one (default: 8711)
    """
    # Imported here, since these packages take a while and no other command needs them.
    from agent.view.serve import LOOPBACK, Feed, application, listen, run

    place = place_meant(tag)
    feed = Feed(Newest(place, place.repo.common_dir, tag).watched)
    with listen(port) as listening:
        address = f"http://{LOOPBACK}:{listening.getsockname()[1]}/"
        which = f"night {tag}" if tag else "the latest night"
        print(f"{which} is at {address}\nCtrl-C ends the server, and leaves the night alone", flush=True)
        os.nice(NICE)
        run(application(feed), listening)


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
        from agent.view.serve import Watched

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

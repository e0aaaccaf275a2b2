"""Show a night as a page for a browser: nightshift report, and nightshift serve, which keeps it up to date."""

import os
import webbrowser
from typing import Annotated

from agent.cli.find import holder_here, place_meant, record_of, tag_to_read
from agent.cli.options import UserPath, file_at, read_by
from agent.errors import NightError
from agent.files import naming, write_plain
from agent.lab.numbers import whole
from agent.night.lock import Holder
from agent.records.place import Place, read_night
from agent.records.record import Record
from agent.text import counted
from agent.view.screen import at_work, print_lines
from agent.view.writer import LEAST_S, PAGE, is_page

PORT = 8711
NICE = 10  # the night goes first where they share processors
AGAIN_S = 3.0  # s between two loads of a served page

# ---- report ----------------------------------------------------------------------------------------------------------


def report(
    tag: str | None = None, /, *, open: bool = False, out: UserPath | None = None, png: UserPath | None = None
) -> None:
    """Write a page for a browser: what was tried, what helped, and how sure that is.

    Args:
        tag: the night (default: the latest)
        open: show it in a browser
        out: the file, or a folder for it (default: report.html in the night's folder)
        png: draw the progress as a picture there, too: a .png file
    """
    from agent.view.charts import picture

    if png is not None and png.suffix.lower() != ".png":
        raise NightError(f"--png must end in .png, and {png} does not")
    place = place_meant(tag)
    night = record_of(place, tag)
    own = place.folder(night.tag) / PAGE
    path = file_at(out, own)
    if out is None and path.is_symlink():  # a clone may bring one
        path.unlink(missing_ok=True)
    if path.is_dir():
        raise NightError(f"{path} is a folder; name a file with --out")
    if out is not None and not is_page(path):
        raise NightError(f"{path} holds something other than a night's page; name another with --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    who = holder_here(place, night.tag) if path == own else None  # no other page is written again
    with at_work(f"drawing the report of night {night.tag}"):
        write_plain(path, drawn(place, night, who, LEAST_S if who is not None else None))
    print_lines([f"wrote {path}: {night.tag}, {counted(len(night.attempts), 'attempt')}"])
    if png is not None:
        png.parent.mkdir(parents=True, exist_ok=True)
        with naming(png):
            png.write_bytes(picture(night))
        print_lines([f"wrote {png}"])
    if open and not webbrowser.open(path.resolve().as_uri()):
        print_lines([f"no browser can be opened here; open {path.resolve()} in one"])


def drawn(place: Place, night: Record, who: Holder | None, again_s: float | None) -> str:
    """Return the page of a night that this process runs; again_s: of one that loads its newer self."""
    from agent.view.page import gather, live_of, page

    left = None if who is None else who.left(len(night.ideas))
    live = None if again_s is None else live_of(place, night, left, again_s)
    return page(night, gather(place, night), live)


# ---- serve -----------------------------------------------------------------------------------------------------------


def serve(
    tag: str | None = None,
    /,
    *,
    port: Annotated[int, read_by(whole(0, 65535))] = PORT,
) -> None:
    """Serve the report as a live page on this machine.

    Args:
        tag: of this night (default: the latest)
        port: 0: any free one (default: 8711)
    """
    from agent.view.serve import LOOPBACK, Server

    place = place_meant(tag)
    night_now(place, tag)
    with Server(port, lambda: drawn(*night_now(place, tag), AGAIN_S)) as server:
        address = f"http://{LOOPBACK}:{server.port}/"
        which = f"night {tag}" if tag else "the latest night"
        print_lines([f"{which} is at {address}", "Ctrl-C ends the server, and leaves the night alone"])
        os.nice(NICE)
        server.run()


def night_now(here: Place, tag: str | None) -> tuple[Place, Record, Holder | None]:
    """Return the night that was named, else the one that runs, else the latest, and the process that runs it.

    The one that runs may be in another working tree of the repository. Raise NightError where there is none.
    """
    place = place_meant(tag, here)
    who = holder_here(place, tag)
    return place, read_night(place, tag_to_read(place, tag) if who is None else who.tag), who

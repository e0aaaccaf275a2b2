"""Show a night as a page for a browser: nightshift report, and nightshift serve, which keeps it up to date."""

import os
import webbrowser
from typing import TYPE_CHECKING, Annotated

from agent.cli.find import holder_here, place_meant, record_of, tag_to_read
from agent.cli.options import UserPath, file_at, read_by
from agent.errors import NightError
from agent.files import naming, write_plain
from agent.lab.numbers import whole
from agent.records.place import Place
from agent.text import counted
from agent.view.screen import at_work, print_lines
from agent.view.writer import PAGE, is_page

if TYPE_CHECKING:
    from agent.view.serve import Watched

PORT = 8711
NICE = 10  # the night goes first where they share processors

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
    from agent.view.page import gather, page

    if png is not None and png.suffix.lower() != ".png":
        raise NightError(f"--png must end in .png, and {png} does not")
    place = place_meant(tag)
    night = record_of(place, tag)
    path = file_at(out, place.folder(night.tag) / PAGE)
    if out is None and path.is_symlink():  # a clone may bring one
        path.unlink(missing_ok=True)
    if path.is_dir():
        raise NightError(f"{path} is a folder; name a file with --out")
    if out is not None and not is_page(path):
        raise NightError(f"{path} holds something other than a night's page; name another with --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    with at_work(f"drawing the report of night {night.tag}"):
        write_plain(path, page(night, gather(place, night)))
    print_lines([f"wrote {path}: {night.tag}, {counted(len(night.attempts), 'attempt')}"])
    if png is not None:
        png.parent.mkdir(parents=True, exist_ok=True)
        with naming(png):
            png.write_bytes(picture(night))
        print_lines([f"wrote {png}"])
    if open and not webbrowser.open(path.resolve().as_uri()):
        print_lines([f"no browser can be opened here; open {path.resolve()} in one"])


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
    # Imported here, since these packages take a while and no other command needs them.
    from agent.view.serve import LOOPBACK, Feed, application, listen, run

    place = place_meant(tag)
    feed = Feed(lambda: watched(place, tag))
    with listen(port) as listening:
        address = f"http://{LOOPBACK}:{listening.getsockname()[1]}/"
        which = f"night {tag}" if tag else "the latest night"
        print_lines([f"{which} is at {address}", "Ctrl-C ends the server, and leaves the night alone"])
        os.nice(NICE)
        run(application(feed), listening)


def watched(here: Place, tag: str | None) -> "Watched":
    """Return the night to show now: the one that was named, else the one that runs, else the latest.

    The one that runs may be in another working tree of the repository. Raise NightError where there is none.
    """
    from agent.view.serve import Watched

    place = place_meant(tag, here)
    who = holder_here(place, tag)
    return Watched(place, tag_to_read(place, tag)) if who is None else Watched(place, who.tag, who.left)

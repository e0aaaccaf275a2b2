"""How a night stands: nightshift status."""

from dataclasses import dataclass

from agent.cli.reading.which import known_tag, place_meant
from agent.cli.words.parser import Subcommand
from agent.night.lock import holder
from agent.night.stop import Stop
from agent.proposers.mix import shares_of
from agent.records.journal import Journal
from agent.records.standing import Standing
from agent.view import terminal as report
from agent.view.screen import print_folded, terminal_width


@dataclass(frozen=True, slots=True)
class StatusOptions:
    """No options."""


def status(options: StatusOptions) -> int:
    place = place_meant()
    who = holder(place.repo.common_dir())
    tag = who.tag if who and place.journal(who.tag).exists() else None
    tag = tag or known_tag(place, None)
    running = who is not None and who.tag == tag
    with Journal.read(place.journal(tag)) as journal:
        night, now = journal.night(), Standing.read(journal)
        brought, dawn = shares_of(now.brought, journal.asks()), next(reversed(journal.dawns()), None)
        history = journal.attempts() if dawn is not None else ()
    pid, stopping = who.pid if who and running else None, Stop(place.folder(tag)).after_run
    print_folded(report.standing_lines(night, now, history, pid=pid, stopping=stopping, dawn=dawn))
    for line in report.shares_lines(brought, terminal_width()) if brought else ():
        print(line)
    return 0


STATUS = Subcommand("status", "what runs now, and how the latest night stands", StatusOptions, status)

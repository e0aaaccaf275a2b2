"""The rows of all nights in results.tsv, from their journals."""

import dataclasses

from commands import refused
from judged import scored_attempt
from samples import HISTORY, NIGHT, enter

from agent.experiment import Attempt, History, Night, Status
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import read_rows, write_ledger


def scored(number: int, parent: int | None = None) -> Attempt:
    return scored_attempt(number, 1.5, parent=parent, status=Status.KEEP, script=f"A = {number}")


def test_what_has_changed_in_any_journal_is_in_the_ledger_when_it_is_written_again(grounds):
    place = Place.of(grounds.root / "train_mlx.py")
    running = (dataclasses.replace(NIGHT, tag="u"), HISTORY[:2])

    def written_again(live: tuple[Night, History] | None = None) -> list[str]:
        write_ledger(place, live)
        return [f"{row['tag']} {row['attempt']}" for row in read_rows(place.ledger)]

    with Journal.create(place.journal("t"), NIGHT) as journal:
        enter(journal, scored(0))
        assert written_again() == ["t 0"]
        assert written_again(running) == ["t 0", "u 0", "u 1"]
        enter(journal, scored(1, parent=0))
        assert written_again() == ["t 0", "t 1", "u 0", "u 1"]
        stamp = place.ledger.stat().st_mtime_ns
        assert written_again() == ["t 0", "t 1", "u 0", "u 1"]
        assert place.ledger.stat().st_mtime_ns == stamp
    place.ledger.unlink()
    assert written_again(running) == ["t 0", "t 1", "u 0", "u 1"]
    place.journal("t").write_text("no journal any more")
    assert written_again((running[0], HISTORY[:1])) == ["t 0", "t 1", "u 0"]


def test_a_link_that_came_with_a_clone_leads_no_row_to_another_file(grounds, tmp_path):
    users, link = tmp_path / "profile", grounds.root / "results.tsv"
    grounds.try_scripts("t", [])
    users.write_text("alias ll='ls -l'\n")
    link.unlink()
    link.symlink_to(users)
    grounds.git("add", "-f", "results.tsv")
    for words in (("results",), ("run", "--tag", "t", "--sandbox", "off")):
        told = refused(grounds.nightshift(*words))
        assert told.endswith(
            "results.tsv as a link, so somebody else may have chosen what it would overwrite; "
            "remove the link with: git rm results.tsv"
        )
    assert users.read_text() == "alias ll='ls -l'\n"
    grounds.git("rm", "-q", "--cached", "results.tsv")
    assert grounds.nightshift("results").returncode == 0  # the user's own link
    assert len(read_rows(link)) == 2
    assert link.is_symlink()

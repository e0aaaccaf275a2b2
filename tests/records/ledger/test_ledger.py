"""The rows of all nights in results.tsv, from their journals."""

from pathlib import Path

from judged import scored_attempt
from samples import NIGHT, enter

from agent.experiment import Decision, Ending, Kind, Run, Score, Status
from agent.records.journal import Journal
from agent.records.ledger.ledger import is_up_to_date
from agent.records.ledger.rendering import rendered
from agent.records.ledger.writing import write


def written(folder: Path, journal: Journal) -> str:
    write(folder / "results.tsv", [(NIGHT, rendered(NIGHT, journal.attempts()))])
    return (folder / "results.tsv").read_text()


def test_a_ledger_is_rendered_again_where_a_row_is_missing_or_old(tmp_path):
    with Journal.create(tmp_path / "journal.sqlite", NIGHT) as journal:
        enter(journal, scored_attempt(0, 1.5, 1.51, 1.49, status=Status.KEEP, script="A = 0"))
        enter(journal, scored_attempt(1, 1.6, parent=0, script="A = 1"))
        enter(journal, scored_attempt(2, 1.6, parent=0, script="A = 2"))
        text = written(tmp_path, journal)
        assert is_up_to_date(text, NIGHT, journal)
        assert not is_up_to_date("", NIGHT, journal)
        assert not is_up_to_date("\n".join(text.split("\n")[:-2]), NIGHT, journal)
        journal.record_decision(1, Decision(Kind.KEPT, "better after all"))
        assert not is_up_to_date(text, NIGHT, journal)
        text = written(tmp_path, journal)
        assert is_up_to_date(text, NIGHT, journal)
        journal.end_run(journal.start_run(0, 3), Run(3, Ending.FINISHED, 0, 9.0, None, ""))
        journal.record_score(0, 3, Score(1.48, 2.0))
        assert not is_up_to_date(text, NIGHT, journal)


def test_a_ledger_with_rows_of_attempts_that_are_void_by_now_is_rendered_again(tmp_path):
    with Journal.create(tmp_path / "journal.sqlite", NIGHT) as journal:
        enter(journal, scored_attempt(0, 1.5, 1.51, 1.49, status=Status.KEEP, script="A = 0"))
        for number in (1, 2):
            enter(journal, scored_attempt(number, 1.6, parent=0, script=f"A = {number}"))
        before = written(tmp_path, journal)
        journal.make_void([1, 2], "the machine was broken")
        assert not is_up_to_date(before, NIGHT, journal)
        assert is_up_to_date(written(tmp_path, journal), NIGHT, journal)

"""The best script of a night can be looked at, and taken away as a whole model."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import refused
from nights import Grounds

from agent.experiment import Proposal
from agent.findings import Confirmation, Findings, Interval
from agent.model import weights_of
from agent.model.folder import model_card
from agent.records.journal import Journal
from agent.records.place import Place, read_night

BEST = 2


@pytest.fixture
def night(trained_night: Path, tmp_path: Path) -> Grounds:
    """A copy of a night of four attempts, to be damaged."""
    return Grounds(Path(shutil.copytree(trained_night, tmp_path / "user")))


def place_of(night: Grounds) -> Place:
    return Place.of(night.root / "train_mlx.py")


def facts_of_best(night: Grounds) -> dict[str, Any]:
    """What `show best --json` says."""
    ended = night.nightshift("show", "best", "--json")
    assert ended.returncode == 0, ended.stderr
    facts: dict[str, Any] = json.loads(ended.stdout)
    return facts


def write_model(night: Grounds, folder: Path) -> str:
    """Write the model and return its card."""
    ended = night.nightshift("export", "mlx-lm", "--out", str(folder))
    assert ended.returncode == 0, ended.stderr
    return (folder / "README.md").read_text()


def weights(night: Grounds, number: int) -> Path:
    return night.folder("t") / "runs" / f"{number:04d}" / "seed0" / "out" / "model.safetensors"


# ---- the best script -------------------------------------------------------------------------------------------------


def test_the_best_script_is_the_one_that_was_kept_last(night):
    facts = facts_of_best(night)
    best = night.attempts("t")[BEST].val_bpb
    assert (facts["attempt"]["number"], facts["measured"]["val_bpb"]) == (BEST, best)
    assert (facts["confirmation"], facts["weights"]) == (None, str(weights(night, BEST)))


def test_or_the_one_that_was_confirmed_without_the_edits_that_have_no_effect_and_its_honest_gain_is_told(night):
    findings = Findings(BEST, 0, 0.2, 0.2, Interval(0.1, 0.05, 0.15), None, (), (1, BEST), None, None)
    with Journal.resume(night.folder("t") / "journal.sqlite") as journal:
        journal.put_confirmation(Confirmation(1, BEST, 4, "2026-01-02T03:04:05Z", findings=findings))
    assert facts_of_best(night)["attempt"]["number"] == 0
    assert "confirmation  +0.100000 [+0.050000, +0.150000] for #2" in night.nightshift("show", "best").stdout


# ---- the model's folder ----------------------------------------------------------------------------------------------


def test_a_model_is_written_whole_and_over_nothing(night, tmp_path):
    folder, attempt = tmp_path / "model", night.attempts("t")[BEST]
    card = write_model(night, folder)
    assert (folder / "train_mlx.py").read_bytes() == attempt.proposal.script.encode()
    assert (folder / "model.safetensors").read_bytes() == weights(night, BEST).read_bytes()
    for words in (f"| these weights (seed 0) | {attempt.val_bpb:.6f} |", f"`{attempt.commit}`", "not confirmed"):
        assert words in card
    assert "/" not in card.partition("| corpus |")[2].partition("\n")[0], "the card must not tell the owner's folders"
    assert "is there already" in refused(night.nightshift("export", "mlx-lm", "--out", str(folder)))


def test_words_of_a_model_are_plain_text_in_the_card(night):
    hostile = "<script>x</script> [a](https://b.example) ![](c) `d` **e** | f\x1b[2J\n# g {{ 7 * 7 }}"
    record = read_night(place_of(night), "t")
    kept = weights_of(place_of(night), record, record.attempts[BEST])
    attempt = dataclasses.replace(kept.attempt, proposal=Proposal(hostile, hostile, hostile))
    splits = {"train": {"tokens": 1, "bytes": 1}}
    manifest = {"dataset": "stdlib", "scale": "tiny", "splits": splits, "vocab_size": 512, "seq_len": 64}
    card = model_card(record, dataclasses.replace(kept, attempt=attempt), manifest)
    for markup in ("<script>", "[a](", "![](", "https://", "\x1b", "**e**", " 49"):
        assert markup not in card
    assert "Python Software Foundation License" in card


# ---- weights ---------------------------------------------------------------------------------------------------------


def test_weights_that_are_cut_off_a_link_or_gone_are_not_taken_and_the_remedy_is_said(night, tmp_path):
    path, model = weights(night, BEST), str(tmp_path / "model")
    whole = path.read_bytes()
    (tmp_path / "elsewhere").write_bytes(whole)
    path.write_bytes(whole[:-1])
    assert "no weights" in refused(night.nightshift("export", "mlx-lm", "--out", model))
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    sentence = refused(night.nightshift("export", "mlx-lm", "--out", model))
    assert "attempt 2 of night t has no weights here" in sentence
    assert "nightshift take t:2, and " in sentence
    assert not (tmp_path / "model").exists()
    assert facts_of_best(night)["weights"] is None


def test_the_run_with_the_lowest_score_gives_the_weights(night, tmp_path):
    first = night.attempts("t")[BEST].runs[0]
    for seed, change_bpb in ((7, -0.1), (8, 0.1)):
        shutil.copytree(weights(night, BEST).parents[1], weights(night, BEST).parents[1].with_name(f"seed{seed}"))
        with Journal.resume(night.folder("t") / "journal.sqlite") as journal:
            score = dataclasses.replace(first.score, val_bpb=first.score.val_bpb + change_bpb)
            journal.end_run(journal.start_run(BEST, seed), dataclasses.replace(first, seed=seed, score=score))
    card = write_model(night, tmp_path / "model")
    assert f"| these weights (seed 7, the lowest of 3 runs) | {first.score.val_bpb - 0.1:.6f} |" in card
    assert f"| the script | {first.score.val_bpb:.6f}" in card  # the mean


# ---- sample ----------------------------------------------------------------------------------------------------------


def test_a_model_continues_a_text_where_its_weights_are_here(night):
    done = night.nightshift("sample", "import os", "--tokens", "9", "--seed", "5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("import os")
    assert len(done.stdout) > len("import os") + 5
    assert "--temperature" in refused(night.nightshift("sample", "x", "--temperature", "nan"))

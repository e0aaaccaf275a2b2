"""A number that a script reports of itself: what counts as one, and one sentence for everything else."""

import json
from dataclasses import replace

import pytest
from samples import RUN

from agent.runs.reported import numbers_of, score_of, takes


@pytest.fixture
def reports(tmp_path):
    def score(printed="", metric="val_loss", **summary):
        (tmp_path / "log.txt").write_text(printed)
        if summary:
            (tmp_path / "summary.json").write_text(json.dumps(summary))
        return score_of(tmp_path, metric)

    return score


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("---\nval_loss: 0.5\n", 0.5),
        ("step 1\nval_loss: 9\n---\nval_loss:          0.997900\nnum_steps: 953\n", 0.9979),
        ("val_loss: 9\n---\nval_loss: 8\n---\n val_loss : 0.5", 0.5),
        ("val_loss: 0.5\n", 0.5),
        ("\rstep 9 | val_loss: 3\r\n---\r\nval_loss: 5e-1\r\n", 0.5),
        ("---\nval_loss: 0.5\nval_loss: 0.500\n", 0.5),
        ("---\nval_loss: -0.5\n", -0.5),
        ("---\nval_loss: 0\n", 0.0),
    ],
)
def test_the_number_below_the_last_rule_is_the_score(reports, printed, value):
    assert reports(printed).val_bpb == value
    assert reports(printed).is_reported


def test_where_higher_is_better_a_score_stays_as_it_is_printed_and_judges_get_it_with_its_sign_turned(reports):
    for printed, judged in (("1200", "-1200.0"), ("0", "0.0")):
        score = reports(f"tokens_s: {printed}", "-tokens_s")
        assert score.val_bpb == float(printed)
        assert str(replace(RUN, score=score).val_bpb) == judged


def test_a_number_in_summary_json_counts_too(reports, tmp_path):
    assert reports(val_loss=0.25).val_bpb == 0.25
    assert reports("---\nval_loss: 0.250", val_loss=0.25).val_bpb == 0.25
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "summary.json").write_text('{"val_loss": 0.125}')
    assert score_of(
        tmp_path, "val_loss"
    ).failure == "it reports val_loss as  0.250 and as 0.125: report one number".replace("  ", " ")


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("", "it reports no val_loss: print a line 'val_loss: NUMBER' at the end, or write it to summary.json"),
        ("my_val_loss: 1\nval_loss 1\n", "it reports no val_loss"),
        ("val_loss: 0.5\n---\ndone\n", "it prints val_loss above its last line ---: print it below"),
        ("---\nval_loss: 0.5\nval_loss: 0.25\n", "it reports val_loss as 0.5 and as 0.25: report one number"),
        ("---\nval_loss: 0.5 0.25\n", "it reports val_loss as 0.5 0.25, which is no number"),
        ("---\nval_loss: good\n", "it reports val_loss as good, which is no number"),
        ("---\nval_loss:\n", "which is no number"),
        ("---\nval_loss: nan\n", "it reports val_loss as nan: a score lies between -1,000,000,000 and 1,000,000,000"),
        ("---\nval_loss: 1e400\n", "it reports val_loss as 1e400: a score lies between"),
        ("---\nval_loss: -inf\n", "it reports val_loss as -inf: a score lies between"),
        ("---\nval_loss: 1e10\n", "it reports val_loss as 1e10: a score lies between"),
    ],
)
def test_anything_else_is_one_sentence(reports, printed, sentence):
    score = reports(printed)
    assert score.val_bpb is None
    assert sentence in score.failure
    assert "\n" not in score.failure


@pytest.mark.parametrize("value", [None, True, [1], {"a": 1}, "x", float("nan")])
def test_what_is_no_number_in_summary_json_is_one_sentence(reports, value):
    assert "\n" not in reports(val_loss=value).failure


def test_a_summary_that_is_a_link_or_nested_without_end_is_none(reports, tmp_path):
    (tmp_path / "secret.json").write_text('{"val_loss": 1}')
    (tmp_path / "summary.json").symlink_to(tmp_path / "secret.json")
    assert reports().val_bpb is None
    (tmp_path / "summary.json").unlink()
    (tmp_path / "summary.json").write_text("[" * 100_000)
    assert reports().val_bpb is None


def test_a_long_log_of_blanks_is_read_quickly(reports):
    assert reports(" " * (1 << 20) + "\n---\nval_loss: 1").val_bpb == 1


def test_the_familys_other_numbers_are_read_from_the_same_lines(reports, tmp_path):
    reports("depth: 1\n---\nval_bpb: 0.99\npeak_vram_mb: 45060.2\nnum_steps: 953\ndepth: 8\nname: x\n")
    assert numbers_of(tmp_path) == {"val_bpb": 0.99, "peak_vram_mb": 45060.2, "num_steps": 953, "depth": 8}


def test_a_script_takes_an_option_that_stands_in_it_in_quotes():
    assert takes('parser.add_argument("--seed", type=int)', "--seed")
    assert takes("@click.option('--seed')", "--seed")
    assert not takes('"""train.py --seed 3"""', "--seed")
    assert not takes('parser.add_argument("--seeds")', "--seed")

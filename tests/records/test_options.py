"""The options of a night: kept when it opens, never to be repeated, changed only where no verdict depends on them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from nights import named_options

from agent.errors import MachineError, NightError
from agent.experiment import Options
from agent.proposers.registry import check_proposers
from agent.records.options import as_words, changes, opened, resumed

LOCAL = "openai:toy@http://127.0.0.1:9/v1"
ASKED = Options("greedy", 2, 30.0, 60.0, "off", True, False, "mix", LOCAL, (1.25, 10.0), 900, 5.0, "sh -c 'x'", 3.0)


def asked(*words: str) -> Mapping[str, Any]:
    return named_options(*words)


def test_every_option_is_written_and_read_by_its_name():
    words = as_words({name: getattr(ASKED, name) for name in Options.__dataclass_fields__ if getattr(ASKED, name)})
    words.append("--no-dry-run")
    assert opened(asked(*words)) == ASKED
    assert asked() == {}


@pytest.mark.parametrize(
    ("before", "words", "sentence"),
    [
        (Options("greedy"), "--judge balanced", "has --judge greedy, not --judge balanced; leave the option out"),
        (
            Options(),
            "--allowance-s 50",
            "has no --allowance-s, not --allowance-s 50; leave the option out to resume it",
        ),
        (Options(sandbox="require"), "--sandbox auto", "has --sandbox require, not --sandbox auto"),
    ],
)
def test_what_verdicts_depend_on_stays(before, words, sentence):
    with pytest.raises(NightError) as caught:
        resumed("t", before, asked(*words.split()))
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("night t has ")


def test_what_costs_no_verdict_its_worth_is_taken():
    named = asked("--sandbox", "require", "--no-early-stop", "--dry-run", "--max-cost", "9")
    now = resumed("t", ASKED, named)
    assert now == replace(ASKED, sandbox="require", early_stop=False, dry_run=True, max_cost=9.0)
    assert changes(ASKED, now) == [
        "--sandbox require (it was --sandbox off)",
        "--no-early-stop (it was --early-stop)",
        "--dry-run (it was --no-dry-run)",
        "--max-cost 9 (it was --max-cost 5)",
    ]


def test_another_model_brings_its_own_price():
    now = resumed("t", ASKED, {"llm": "openai:other@http://127.0.0.1:9/v1"})
    assert (now.price, now.llm_max_tokens, now.max_cost) == (None, None, 5.0)
    assert resumed("t", ASKED, {"llm": LOCAL}).price == (1.25, 10.0)
    with pytest.raises(NightError, match="--max-cost 5 cannot be kept without a price"):
        check_proposers(now, {"llm": now.llm})


def test_a_proposer_of_the_night_may_rest_but_is_not_named_in_vain():
    resting = resumed("t", ASKED, {"proposer": "search"})
    check_proposers(resting, {"proposer": "search"})
    with pytest.raises(NightError, match="--llm says nothing where no llm is asked"):
        check_proposers(resting, {"proposer": "search", "llm": LOCAL})
    with pytest.raises(MachineError, match="no-such-agent"):
        check_proposers(replace(ASKED, agent="no-such-agent"), {})
    check_proposers(replace(resting, agent="no-such-agent"), {})


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'GITHUB_TOKEN=ghp_0123456789 true'",
        "true --key sk-ant-api03-abcdefghijklmnop",
    ],
)
def test_a_key_in_a_command_line_is_not_kept(command):
    with pytest.raises(NightError, match=r"looks like a key .*export it instead") as caught:
        check_proposers(Options(proposer="command", agent=command), {"agent": command})
    assert "abc" not in str(caught.value)
    assert "0123" not in str(caught.value)


OF_A_SCRIPT = (
    "--metric",
    "-rows_s",
    "--read",
    "/a,b",
    "--read",
    "/c d",
    "--python",
    "/venv/bin/python",
    "--limit-s",
    "9",
)


def test_the_options_of_a_script_that_reports_its_own_score_are_written_and_read():
    options = opened(asked(*OF_A_SCRIPT))
    assert (options.metric, options.read, options.limit_s) == ("-rows_s", ("/a,b", "/c d"), 9.0)
    words = as_words({name: getattr(options, name) for name in ("metric", "read", "python", "limit_s")})
    assert opened(asked(*words)) == options


@pytest.mark.parametrize("metric", ["", "-", "a: b", "two\nlines", " x", "x" * 99, "--"])
def test_a_name_that_no_line_can_have_is_no_metric(metric):
    with pytest.raises(NightError, match="names no number"):
        opened({"metric": metric})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--metric", "x", "--early-stop"), "--early-stop is for scripts that nightshift scores"),
        (("--metric", "x", "--plausible-gain", "20"), "--plausible-gain 20 is for scripts that nightshift scores"),
        (("--metric", "x", "--dry-run"), "--dry-run is for scripts that nightshift scores"),
        (("--metric", "x", "--limit-s", "9", "--allowance-s", "9"), "--limit-s 9 is in place of --allowance-s"),
        (("--metric", "x", "--pool", "ray"), "--pool ray is for scripts that nightshift scores"),
        (("--read", "/data"), "--read /data is for a script that prints its own score; add --metric NAME"),
        (("--python", "/bin/python"), "--python /bin/python is for a script that prints its own score"),
    ],
)
def test_an_option_of_another_kind_of_script_is_refused(words, sentence):
    with pytest.raises(NightError) as caught:
        opened(asked(*words))
    assert sentence in str(caught.value)


def test_a_night_keeps_its_metric():
    with pytest.raises(NightError, match="has no --metric, not --metric=x"):
        resumed("t", Options(), asked("--metric", "x"))
    with pytest.raises(NightError, match="has --metric=-x, not --metric=x"):
        resumed("t", Options(metric="-x"), asked("--metric", "x"))
    with pytest.raises(NightError, match="--no-early-stop is for scripts that nightshift scores"):
        resumed("t", Options(metric="-x"), asked("--no-early-stop"))

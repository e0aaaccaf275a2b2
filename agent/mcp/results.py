"""Turn the answer of a command into the result of a tool: harmless text, bounded in size, errors marked as such."""

import json
from typing import Any

from mcp.types import CallToolResult, TextContent

from agent.mcp.commands import Facts
from agent.text import harmless_lines, shown_difference

# Claude Code takes 25,000 tokens of a result, at three to four characters each
MOST_CHARS = 72_000
# characters of a text, entries of a list
STEPS = ((60_000, 400), (12_000, 200), (3_000, 100), (800, 40), (200, 20), (60, 5))
AT_THE_END = frozenset({"log_text", "traceback"})  # their last lines say what happened
HEAD = ("schema_version", "error", "exit_code")


def result_of(answer: Facts) -> CallToolResult:
    """Return an answer as structured content, and as text for clients that read no other."""
    facts = bounded(answer)
    error = facts.get("error")
    more = {name: value for name, value in facts.items() if name not in HEAD} if error else facts
    text = json.dumps(more, ensure_ascii=False)
    if error:
        text = f"{error}\n{text}" if more else str(error)
    return CallToolResult(content=[TextContent(text=text)], structured_content=facts, is_error=bool(error))


def bounded(answer: Facts) -> Facts:
    """Return an answer whose texts and lists are cut, as far as needed, to MOST_CHARS of JSON."""
    facts = answer
    for chars, entries in STEPS:
        facts = {name: _cut(value, chars, entries, at_the_end=name in AT_THE_END) for name, value in answer.items()}
        if len(json.dumps(facts, ensure_ascii=False)) <= MOST_CHARS:
            break
    return facts


def _cut(value: Any, chars: int, entries: int, *, at_the_end: bool) -> Any:
    if isinstance(value, str):
        return _cut_text(harmless_lines(value), chars, at_the_end=at_the_end)
    if isinstance(value, list):
        shown = [_cut(one, chars, entries, at_the_end=at_the_end) for one in value[:entries]]
        return [*shown, f"and {len(value) - entries:,} more"] if len(value) > entries else shown
    if isinstance(value, dict):
        return {name: _cut(one, chars, entries, at_the_end=name in AT_THE_END) for name, one in value.items()}
    return value


def _cut_text(text: str, most_chars: int, *, at_the_end: bool) -> str:
    left_out = len(text) - most_chars
    if left_out <= 0:
        return text
    if at_the_end:
        return f"[{left_out:,} characters are left out]\n{text[-most_chars:]}"
    return f"{text[:most_chars]}\n[{left_out:,} characters are left out]"


def history_of(answer: Facts, limit: int) -> Facts:
    """Return the latest rows of `nightshift results --json` with the columns that matter to the next idea."""
    rows = answer["rows"]
    by_commit = {row["commit"]: row for row in rows if row["commit"]}
    shown = [_row(row, by_commit.get(row["parent"])) for row in rows[-limit:]]
    head = {name: answer[name] for name in (*HEAD, "tag") if name in answer}
    return {**head, "attempts": len(rows), "earlier": len(rows) - len(shown), "history": shown}


def _row(row: Facts, parent: Facts | None) -> Facts:
    score, before = row["val_bpb"], parent["val_bpb"] if parent else None
    measured = None if score is None or before is None else round(shown_difference(before, score), 6) + 0.0
    return {
        "attempt": row["attempt"],
        "parent": parent["attempt"] if parent else None,
        "status": row["status"],
        "val_bpb": score,
        "gain_bpb": measured if row["gain_bpb"] is None else row["gain_bpb"],
        "sure": row["sure"],
        "title": row["description"],
        "source": row["source"],
    }


def progress_words(answer: Facts) -> str:
    """Say in a line what a try without a verdict does now."""
    if answer.get("state") != "running":
        before = answer.get("in_line")
        return f"waiting, {before} before it" if before else "waiting"
    words = str(answer.get("doing") or "at work")
    if answer.get("attempt") is not None:
        words += f" of attempt {answer['attempt']}"
    if answer.get("fraction") is not None:
        words += f", {answer['fraction']:.0%} of its budget"
    return words + (f", loss {answer['loss']:.3f}" if answer.get("loss") is not None else "")

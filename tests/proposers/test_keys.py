"""A key that comes back in an answer, an edit or a note stays out of all that is kept, in whatever spelling."""

import codecs
from base64 import b32encode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote

import pytest
from agents import EDITED, IDEA, SCRIPT, Agent, brief
from asking import EDIT, NEW, OLD, PROVIDERS, Model, edit
from llm_servers import KEY, Server, content, says

from agent.errors import NightError, NoIdea
from agent.proposers import queue
from agent.proposers.keys import holds_key, keys_in
from agent.proposers.llm.chat import Endpoint
from agent.proposers.notes import add_note, read_notes

LONG = "sk-proj-Zk3v9QwErTy_uIoP-aSdFgHjKlXcVbNm0123456789"  # as many characters as a provider's key
SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in other letters": str.swapcase,
    "reversed": lambda key: key[::-1],
    "reversed and in other letters": lambda key: key[::-1].upper(),
    "rot13": lambda key: codecs.encode(key, "rot13"),
    "spaced": " ".join,
    "with dots": ".".join,
    "one letter a line": "\n".join,
    "with zero-width characters": "\u200b".join,
    "with joiners": "\u2060\ufeff".join,
    "with codes of zero-width characters": r"\u200b".join,
    "struck through": "\u0336".join,
    "in wide letters": lambda key: "".join(chr(ord(char) + 0xFEE0) if char.isalnum() else char for char in key),
    "as several strings": lambda key: f'"{key[:7]}" + "{key[7:]}"',
    "as a list": lambda key: repr(list(key)),
    "its codes": lambda key: repr([ord(char) for char in key]),
    "hexadecimal": lambda key: key.encode().hex(),
    "hexadecimal, spaced": lambda key: key.encode().hex(" ").upper(),
    "hexadecimal codes": lambda key: ", ".join(f"0x{ord(char):02x}" for char in key),
    "escapes": lambda key: "".join(f"\\x{ord(char):02x}" for char in key),
    "long escapes": lambda key: "".join(f"\\u{ord(char):04x}" for char in key),
    "some escapes": lambda key: key.replace("-", r"\x2d").replace("s", r"\u0073"),
    "escapes of JavaScript": lambda key: "".join(f"\\u{{{ord(char):x}}}" for char in key),
    "longest escapes": lambda key: "".join(f"\\U{ord(char):08x}" for char in key),
    "calls of chr": lambda key: " + ".join(f"chr({ord(char)})" for char in key),
    "octal": lambda key: " ".join(f"{ord(char):o}" for char in key),
    "octal escapes": lambda key: "".join(f"\\{ord(char):o}" for char in key),
    "binary": lambda key: " ".join(f"{ord(char):08b}" for char in key),
    "base32": lambda key: b32encode(b"--" + key.encode() + b"/end").decode(),
    "base64, backwards": lambda key: b64encode(key.encode()).decode()[::-1],
    "hexadecimal, backwards": lambda key: key.encode().hex()[::-1],
    "percent": quote,
    "all in percent": lambda key: "".join(f"%{ord(char):02X}" for char in key),
    "HTML": lambda key: "".join(f"&#{ord(char)};" for char in key),
    "inside a word": lambda key: f"prefix{key}suffix",
    "in a URL": lambda key: f"https://example.org/?api_key={quote(key)}&x=1",
} | {
    f"base64 behind {before} bytes{name}": lambda key, before=before, coded=coded: coded(
        b"-" * before + key.encode() + b"/end"
    ).decode()
    for before in range(4)
    for name, coded in (("", b64encode), (", for a URL", urlsafe_b64encode))
}  # fmt: skip


NUMBERS = ("12345678", "1234567890", "00000000", "0" * 16)  # numbers that a list may hold


@pytest.mark.parametrize("spelt", SPELLINGS.values(), ids=SPELLINGS)
def test_a_key_is_found_in_any_spelling(spelt):
    for key in (KEY, LONG):
        assert holds_key(f"wider MLP, {spelt(key)} it learns more", key)
        assert not holds_key(f"wider MLP, {spelt('another-test-key-9876543210')} it learns more", key)
    assert holds_key(f"{spelt(LONG[:30])}\nand then\n{spelt(LONG[30:])}", LONG)


@pytest.mark.parametrize(
    "word", ["ollama", "EMPTY", "none", "x", "not-needed", "lm-studio", "placeholder", "no-key", *NUMBERS]
)
def test_a_word_that_stands_for_a_key_is_none(word):
    assert not holds_key(f"It is {word}: {word.replace('-', ' ')}.", word)
    assert keys_in({"OPENAI_API_KEY": word, "TOKENIZERS_PARALLELISM": "false-0123456789"}) == {}


PLACES: dict[str, Callable[[str], str]] = {
    "title": lambda key: EDIT.replace("less smoothing", f"less {key}"),
    "code": lambda key: edit(OLD, f"{NEW}\nWHO = {key!r}"),
    "thoughts": lambda key: f"<think>{b64encode(key.encode()).decode()}</think>{EDIT}",
    "no edit": lambda key: f"I would rather tell you {key[::-1]}",
}


@PROVIDERS
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_an_answer_that_holds_the_key_is_refused_once_and_paid_for(place, provider):
    with Server(says(place(KEY))) as server:
        model = Model(server, provider, price=(1.0, 2.0))
        said = model.refusal()
    assert "put the key into its answer" in said
    assert server.url.removesuffix("/v1") in said
    assert f"{provider.upper()}_API_KEY" in said
    (ask,) = model.asks
    assert (ask.failure, ask.usd is not None) == (said, True)
    assert not holds_key(str(model.asks), KEY)
    assert len(server.requests) == 1


def test_a_failure_that_holds_the_key_in_another_spelling_is_not_quoted():
    with Server(content(f'{{"error": {{"message": "no such key: {KEY[::-1]}"}}}}'.encode())) as server:
        model = Model(server)
        assert "a message that holds a key" in model.refusal()
    assert not holds_key(str(model.asks), KEY)


@pytest.mark.parametrize("spec", [f"openai:{KEY}", f"openai:m@https://h/v1/{KEY}", f"openai:m@https://h/{LONG}/v1"])
def test_a_key_in_the_name_of_a_model_is_not_kept(spec):
    with pytest.raises(NightError, match="put it into OPENAI_API_KEY") as caught:
        Endpoint.parse(spec, {"OPENAI_API_KEY": KEY})
    assert KEY not in str(caught.value)


# ---- agents and people -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "does",
    [
        "echo \"$TOY_TOKEN\" > IDEA.md\n",
        f"{IDEA}echo \"# $TOY_TOKEN\" >> train_mlx.py\n",
        f"{IDEA}echo \"WHO = '$(printf %s \"$TOY_TOKEN\" | base64)'\" >> train_mlx.py\n",
    ],
)  # fmt: skip
def test_an_agents_edit_that_holds_a_key_of_the_environment_is_none(does, tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_TOKEN", KEY)
    agent = Agent(tmp_path)
    edits = 'sed -i.orig "s/^LR = .*/LR = 0.02/" train_mlx.py; echo "the token is $TOY_TOKEN"\n'
    assert agent.does(f"{edits}{IDEA}").proposals(brief())[0].script == EDITED
    with pytest.raises(NoIdea, match="its edit holds the key in TOY_TOKEN") as caught:
        agent.does(edits + does).proposals(brief())
    assert not holds_key(f"{caught.value} {agent.asks}", KEY)
    logs = [path.read_text() for path in agent.folder.glob("asks/*/log.txt")] or pytest.fail("no log")
    assert not any(holds_key(log, KEY) for log in logs)


def test_what_people_submit_and_note_holds_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_TOKEN", KEY)
    known = {"script": "train_mlx.py", "now": "2026-01-01T00:00:00Z"}
    for text, message in (
        (f"{SCRIPT}\n# {KEY}\n", "wider"),
        (SCRIPT, f"wider {KEY}"),
        (SCRIPT, f"wider\n\n{KEY[::-1]}"),
    ):
        with pytest.raises(NightError, match="this edit holds the key in TOY_TOKEN"):
            queue.submit(tmp_path / "queue", text, message, **known)
    assert not (tmp_path / "queue").exists()
    with pytest.raises(NightError, match="the note holds the key in TOY_TOKEN"):
        add_note(tmp_path, "\u200b".join(f"use {KEY}"), known["now"])
    assert read_notes(tmp_path) == ()


def test_an_entry_that_came_into_the_queue_by_hand_is_put_aside_where_it_holds_a_key(tmp_path, monkeypatch):
    path = queue.submit(tmp_path / "queue", f"{EDITED}\n# {KEY}\n", "wider", script="train_mlx.py", now="")
    monkeypatch.setenv("TOY_TOKEN", KEY)
    with pytest.raises(NoIdea, match="the queue is empty"):
        queue.Queue(tmp_path / "queue", tmp_path / "nights").proposals(brief())
    assert "the key in TOY_TOKEN" in (path.parent / queue.REFUSED / f"{path.stem}.txt").read_text()

"""Propose edits by a language model: send it the night's facts, ask for one edit, and parse its reply strictly.

A reply is text. Only agent/proposers/llm/reply.py turns it into a script, and the script runs only in the box. An
unusable reply is sent back once, with the error.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from agent.clock import utc_now
from agent.errors import NightError, NoIdea, NotYet, Unanswered
from agent.experiment import SOURCE_CHARS, Ask, Proposal, source_name
from agent.proposers.author.attempts import Combinable, to_combine
from agent.proposers.author.pages import SOURCES, AskMode, Conversation, ask_again, compose
from agent.proposers.briefing import Briefing
from agent.proposers.llm.chat import POLL_S, CallFailed, Patience, Reply, ask, cache_price, client_of
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.reply import BadReply, Edited, combined, read_ideas, read_reply

TRIES = 2  # one reply, and one correction
USUAL = Patience()
CHARS_PER_TOKEN = 3  # fewer than usual, to bound the cost of a call whose tokens were not counted
MOST_CHARS_PER_TOKEN = 8  # if a server counts fewer tokens than this suggests, it has cut the question
FAILURE_CHARS = 400


@dataclass(frozen=True, slots=True)
class Price:
    """Hold the price of a model in dollars per million tokens.

    Providers charge less for input that they have in a cache, by a factor that depends on the model. Without that price
    such tokens count as any other input, which is an upper bound.
    """

    usd_in: float
    usd_out: float
    usd_cached: float | None = None

    def of(self, tokens_in: float, tokens_out: float, tokens_cached: float = 0.0) -> float:
        """Return the dollars; tokens_cached: those of tokens_in that the server had in its cache."""
        less = 0.0 if self.usd_cached is None else tokens_cached * (self.usd_in - self.usd_cached)
        return (tokens_in * self.usd_in - less + tokens_out * self.usd_out) / 1e6


class CostCap:
    """Hold back calls that could pass the cap: count those that are over, and those in flight as their most."""

    def __init__(self, max_usd: float | None, stopped: Callable[[], bool]) -> None:
        self._max_usd, self._stopped = max_usd, stopped  # None: no cap
        self._changed = threading.Condition()
        self._spent_usd: float | None = None  # None before the first call of this process
        self._in_flight_usd = 0.0

    @contextmanager
    def call(self, most_usd: float, before_usd: float) -> Iterator[list[float]]:
        """Make room for a call that may cost so much, and wait for others where they may reach the cap.

        Yield the list that takes the costs. before_usd: spent by the night before the first call of this process. Raise
        Unanswered once the cap is reached, or if the night is stopping.
        """
        costs_usd: list[float] = []
        with self._changed:
            if self._spent_usd is None:
                self._spent_usd = before_usd
            while True:
                if self._stopped():
                    raise Unanswered("not asked, because the night is stopping")
                if self._max_usd is None or self._spent_usd + self._in_flight_usd < self._max_usd:
                    break
                if self._spent_usd >= self._max_usd:
                    spent = f"${self._spent_usd:.2f} of --max-cost {self._max_usd:g} are spent"
                    raise Unanswered(f"{spent}; raise it to ask on")
                self._changed.wait(POLL_S)
            self._in_flight_usd += most_usd
        try:
            yield costs_usd
        finally:
            with self._changed:
                self._in_flight_usd -= most_usd
                self._spent_usd += sum(costs_usd)
                self._changed.notify_all()


class LLM:
    """Propose edits by one language model.

    Raise NightError for an unusable spec, key or spending limit, and MachineError without the provider's SDK. record()
    gets every call as soon as it is over, in the thread that called ideas().
    """

    def __init__(
        self,
        spec: str,  # PROVIDER:MODEL[@URL]
        record: Callable[[Ask], None],
        *,
        url: str | None = None,
        stopped: Callable[[], bool] = lambda: False,
        price: Price | None = None,  # None: unknown
        max_usd: float | None = None,  # for all language models of the night together
        patience: Patience = USUAL,
        stream: bool = False,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._endpoint = Endpoint.parse(spec, url, environ)
        if max_usd is not None and price is None:
            raise NightError(
                f"--max-cost {max_usd:g} cannot be kept without a price; give --price IN,OUT in dollars for a million "
                f"tokens, 0,0 for a model of your own"
            )
        client_of(self._endpoint, patience).close()  # find errors of the setup before the night, not in it
        self._record, self._stopped, self._patience, self._stream = record, stopped, patience, stream
        self._price, self._cap = price, CostCap(max_usd, stopped)
        self._refused: tuple[str, float] | None = None  # why the server refused, and until when (monotonic) not to ask
        self._model = re.sub(r"[^A-Za-z0-9._:/-]", "_", self._endpoint.model)

    @property
    def warning(self) -> str | None:
        """Return a warning for the owner before the night begins, or None."""
        return self._endpoint.warning

    def source_of(self, mode: AskMode) -> str:
        """Return the source of the ideas that it has in this mode."""
        return f"{mode}:{self._model}"[:SOURCE_CHARS]

    def ideas(self, briefing: Briefing, mode: AskMode = AskMode.EDIT) -> list[Proposal]:
        """Return the ideas of one answer; several only where it explores.

        What this model broke in this mode is repaired instead. Raise NotYet where there is nothing to combine,
        Unanswered where no call is possible, and NoIdea where no answer could be used.
        """
        source, broken = self.source_of(mode), briefing.broken
        if broken is not None and broken.proposal.source != source:
            broken = None
        mode = mode if broken is None else AskMode.EDIT
        parts = to_combine(briefing.history) if mode is AskMode.COMBINE else None
        if mode is AskMode.COMBINE and parts is None:
            raise NotYet("there are no two attempts to combine yet, one of them a near miss")
        asked, wrong = compose(briefing, broken, mode), ""
        script = (broken or briefing.parent).proposal.script
        repairs = broken.number if broken is not None else None
        for _ in range(TRIES):
            if self._refused is not None and time.monotonic() < self._refused[1] and not self._stopped():
                raise Unanswered(self._refused[0])
            reply, failure = Reply(), None
            with self._cap.call(self._most_usd(asked), most_spent_usd(briefing.asks)) as costs_usd:
                started, start = utc_now(), time.monotonic()
                try:
                    reply = ask(self._endpoint, self._patience, asked, self._stopped, stream=self._stream)
                    edits = self._read(reply, script, briefing.night.script, mode, parts)
                except (CallFailed, BadReply) as error:
                    edits, failure = (), error
                    wrong = self._presentable(f"{error}{_hint(reply, asked)}")
                usd, is_charged = self._usd(reply), not isinstance(failure, CallFailed) or failure.charged
                call = Ask(
                    *(briefing.number, source, started, time.monotonic() - start, self._endpoint.model),
                    *(reply.tokens_in, reply.tokens_out, usd, wrong if failure else None),
                    usd_most=self._most_usd(asked) if self._price and usd is None and is_charged else None,
                    tokens_cached=reply.tokens_cached,
                )
                self._record(call)
                costs_usd.append(most_spent_usd([call]))
            if isinstance(failure, CallFailed):
                if failure.lasting:
                    self._refused = (wrong, time.monotonic() + self._patience.rest_s)
                raise Unanswered(wrong) from failure
            if failure is None:
                return [
                    Proposal.of(edit.script, edit.title, edit.hypothesis, source, repairs=repairs) for edit in edits
                ]
            asked = ask_again(asked, reply.text, str(failure))
        raise NoIdea(self._presentable(f"no answer could be used, the last because {wrong}"))

    def _usd(self, reply: Reply) -> float | None:
        if self._price is None or reply.tokens_in is None or reply.tokens_out is None:
            return None
        tokens_in = reply.tokens_in + (cache_price(self._endpoint) - 1) * reply.tokens_written
        return self._price.of(tokens_in, reply.tokens_out, reply.tokens_cached or 0)

    def _most_usd(self, asked: Conversation) -> float:
        """Return the most that a question may cost; 0 where the price is not known."""
        if self._price is None:
            return 0.0
        tokens_in = cache_price(self._endpoint) * asked.chars / CHARS_PER_TOKEN
        return self._price.of(tokens_in, self._patience.max_tokens)

    def _read(
        self, reply: Reply, script: str, name: str, mode: AskMode, parts: Combinable | None
    ) -> tuple[Edited, ...]:
        if reply.declined:
            raise BadReply("the answer was declined: propose an ordinary edit of the training script")
        if mode is AskMode.EXPLORE:
            return read_ideas(reply.text, script, name, is_whole=not reply.cut_off)
        if reply.cut_off:
            raise BadReply(
                f"the answer was cut off, at {self._patience.max_tokens:,} tokens or where the context was full: "
                f"think and answer shorter, with SEARCH/REPLACE blocks rather than the whole script"
            )
        edit = read_reply(reply.text, script, name)
        return (edit if parts is None else combined(edit, parts),)

    def _presentable(self, sentence: str) -> str:
        return self._endpoint.without_key(sentence, FAILURE_CHARS)


def _hint(reply: Reply, asked: Conversation) -> str:
    """Return a hint if the server seems to have cut the question: Ollama and others do so silently."""
    if reply.tokens_in is None or reply.tokens_in * MOST_CHARS_PER_TOKEN >= asked.chars:
        return ""
    return (
        f" (of a question of {asked.chars:,} characters it read {reply.tokens_in:,} tokens: give it a longer context)"
    )


def most_spent_usd(asks: Sequence[Ask]) -> float:
    """Return the dollars spent on all language models; a call without token counts counts with its highest cost."""
    ours = (ask for ask in asks if source_name(ask.source) in SOURCES)
    return sum(ask.usd if ask.usd is not None else ask.usd_most or 0.0 for ask in ours)

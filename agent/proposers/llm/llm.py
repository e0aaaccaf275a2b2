"""Propose edits by a language model: send it the night's facts, ask for one edit, and parse its reply strictly.

A reply is text. Only agent/proposers/llm/reply.py turns it into a script, and the script runs only in the box. An
unusable reply is sent back once, with the error.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

from agent.clock import utc_now
from agent.errors import NightError, NoIdea, NotYet, Unanswered
from agent.experiment import SOURCE_CHARS, Ask, Attempt, Proposal, source_name
from agent.proposers.author.attempts import to_combine
from agent.proposers.briefing import Briefing
from agent.proposers.llm.chat import Chat, Patience
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.prompt import SOURCES, AskMode, Conversation, ask_again, compose
from agent.proposers.llm.protocols import API_FORMATS, CallFailed, Reply
from agent.proposers.llm.reply import BadReply, Edited, read_combination, read_ideas, read_reply

POLL_S = 0.1  # how often a thread that waits looks whether the night is stopping


class CostCap:
    """Count calls that are over with their costs, and calls in flight with the most that each may cost.

    max_usd: the cap; None: there is none. stopped: whether the night is stopping.
    """

    def __init__(self, max_usd: float | None, stopped: Callable[[], bool]) -> None:
        self._max_usd, self._stopped = max_usd, stopped
        self._changed = threading.Condition()
        self._before_usd: float | None = None  # spent before the first call of this process
        self._spent_usd = 0.0  # by the calls of this process that are over
        self._in_flight_usd = 0.0

    @contextmanager
    def call(self, most_usd: float, known_usd: float) -> Iterator[None]:
        """Make room for a call that may cost so much; wait for others in flight where they may reach the cap.

        known_usd: spent by the night, as far as the caller knows. Raise Unanswered once the cap is reached, or if the
        night is stopping.
        """
        with self._changed:
            if self._before_usd is None:
                self._before_usd = known_usd
            while True:
                if self._stopped():
                    raise Unanswered("not asked, because the night is stopping")
                spent_usd = max(self._before_usd + self._spent_usd, known_usd)
                if self._max_usd is None or spent_usd + self._in_flight_usd < self._max_usd:
                    break
                if spent_usd >= self._max_usd:
                    raise Unanswered(f"${spent_usd:.2f} of --max-cost {self._max_usd:g} are spent; raise it to ask on")
                self._changed.wait(POLL_S)
            self._in_flight_usd += most_usd
        try:
            yield
        finally:
            with self._changed:
                self._in_flight_usd -= most_usd
                self._changed.notify_all()

    def spend(self, usd: float) -> None:
        """Count a call that is over, while its room is still taken."""
        with self._changed:
            self._spent_usd += usd


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
        self._record, self._stopped, self._patience, self._stream = record, stopped, patience, stream
        self._chat().client.close()  # find errors of the setup before the night, not in it
        self._price, self._cap = price, CostCap(max_usd, stopped)
        self._refused: tuple[str, float] | None = None  # why the server refused, and until when (monotonic) not to ask
        self._model = re.sub(r"[^A-Za-z0-9._:/-]", "_", self._endpoint.model)
        self.source = self.source_of(AskMode.EDIT)

    def __repr__(self) -> str:
        return f"LLM({self.source!r})"

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
        if broken is not None:
            mode = AskMode.EDIT
        if mode is AskMode.COMBINE and to_combine(briefing.history) is None:
            raise NotYet("there are no two attempts to combine yet, one of them a near miss")
        asked, wrong, spent_usd = compose(briefing, broken, mode), "", most_spent_usd(briefing.asks)
        for _ in range(TRIES):
            self._check_not_refused()
            with self._cap.call(self._most_usd(asked) or 0.0, spent_usd):
                reply, ask = self._ask(asked, Ask(briefing.number, source, utc_now(), 0.0, self._endpoint.model))
                try:
                    edits = self._read(reply, briefing, broken, mode)
                except BadReply as error:
                    wrong = f"{error}{_hint(reply, asked)}"
                    self._note(replace(ask, failure=self._presentable(f"the answer cannot be used: {wrong}")))
                    asked, spent_usd = ask_again(asked, reply.text, str(error)), spent_usd + most_spent_usd((ask,))
                    continue
                self._note(ask)
            repairs = broken.number if broken is not None else None
            return [Proposal.of(one.script, one.title, one.hypothesis, source, repairs=repairs) for one in edits]
        raise NoIdea(self._presentable(f"no answer could be used, the last because {wrong}"))

    def _chat(self) -> Chat:
        return Chat(self._endpoint, self._patience)

    def _check_not_refused(self) -> None:
        refused = self._refused
        if refused is not None and time.monotonic() < refused[1] and not self._stopped():
            raise Unanswered(refused[0])

    def _note(self, ask: Ask) -> None:
        """Record a call that is over, and count its cost."""
        self._record(ask)
        self._cap.spend(most_spent_usd((ask,)))

    def _ask(self, asked: Conversation, ask: Ask) -> tuple[Reply, Ask]:
        """Return the reply and its record, not yet recorded; after a failure, record it and raise Unanswered."""
        start = time.monotonic()
        try:
            reply = self._chat().ask(asked, self._patience.ask_s, self._stopped, stream=self._stream)
        except CallFailed as error:
            sentence = self._presentable(str(error))
            if error.lasting:
                self._refused = (sentence, time.monotonic() + self._patience.rest_s)
            most = self._most_usd(asked) if error.charged else None
            self._note(replace(ask, wall_s=time.monotonic() - start, failure=sentence, usd_most=most))
            raise Unanswered(sentence) from error
        usd = self._usd(reply)
        most = self._most_usd(asked) if usd is None else None
        ask = replace(ask, wall_s=time.monotonic() - start, usd=usd, usd_most=most)
        ask = replace(ask, tokens_in=reply.tokens_in, tokens_out=reply.tokens_out)
        return reply, replace(ask, tokens_cached=reply.tokens_cached)

    def _usd(self, reply: Reply) -> float | None:
        if self._price is None or reply.tokens_in is None or reply.tokens_out is None:
            return None
        return self._price.of(reply.tokens_in + reply.tokens_on_top, reply.tokens_out, reply.tokens_cached or 0)

    def _most_usd(self, asked: Conversation) -> float | None:
        if self._price is None:
            return None
        tokens_in = API_FORMATS[self._endpoint.provider].most_for_input * asked.chars / CHARS_PER_TOKEN
        return self._price.of(tokens_in, self._patience.max_tokens)

    def _read(self, reply: Reply, briefing: Briefing, broken: Attempt | None, mode: AskMode) -> tuple[Edited, ...]:
        limit, name = self._patience.max_tokens, briefing.night.script
        base, parts = (broken or briefing.parent).proposal.script, to_combine(briefing.history)
        if reply.declined:
            raise BadReply("the answer was declined: propose an ordinary edit of the training script")
        if mode is AskMode.EXPLORE:
            with suppress(BadReply) if reply.cut_off else nullcontext():
                return read_ideas(reply.text, base, name, is_whole=not reply.cut_off)
        if reply.cut_off:
            early = reply.tokens_out is not None and reply.tokens_out < limit
            where = "where the model's context was full" if early else f"at {limit:,} tokens"
            raise BadReply(
                f"the answer was cut off {where}: think and answer shorter, with SEARCH/REPLACE blocks rather than "
                f"the whole script"
            )
        if mode is AskMode.COMBINE and parts is not None:
            return (read_combination(reply.text, base, name, parts),)
        return (read_reply(reply.text, base, name),)

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

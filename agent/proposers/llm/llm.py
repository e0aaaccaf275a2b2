"""Propose edits by a language model: send it the night's facts, ask for one edit, and parse its answer strictly.

An answer is text. Only agent/proposers/llm/reply.py turns it into a script, and the script runs only in the box. An
unusable answer is sent back once, with the error.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from agent.clock import utc_now
from agent.errors import NightError, NoIdea
from agent.experiment import SOURCE_CHARS, Ask, Proposal, Terms, source_name
from agent.proposers.author.pages import Conversation, ask_again, compose
from agent.proposers.briefing import Briefing
from agent.proposers.llm.chat import MAX_TOKENS, CallFailed, Patience, Reply, ask, client_of
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.reply import BadReply, Edited, read_reply
from agent.proposers.source import Around, Messages, Need, Source
from agent.records.terms import OF_THE_MODEL

TRIES = 2  # one answer, and one correction
USUAL = Patience()
CHARS_PER_TOKEN = 3  # fewer than usual, to bound the cost of a call whose tokens were not counted
MOST_CHARS_PER_TOKEN = 8  # if a server counts fewer tokens than this suggests, it has cut the question
WRITTEN = 2.0  # what a token costs at most that a server puts into its cache, in tokens of input
FAILURE_CHARS = 400


class LLM(Source):
    """Propose edits by one language model.

    Raise NightError for an unusable spec, key or spending limit, and MachineError without the provider's SDK.
    """

    name, help = "llm", "a language model"
    need = Need("llm", "SPEC", "openai:gpt-5", details=(*OF_THE_MODEL, "max_cost"))
    costs = True
    at_once = 4  # providers limit the rate, and a server at home is slower with more

    @classmethod
    def of(cls, around: Around) -> "LLM":
        return cls.by_terms(around.terms, around.messages)

    @classmethod
    def by_terms(cls, terms: Terms, messages: Messages) -> "LLM":
        return cls(
            terms.llm or "",
            messages,
            url=terms.llm_url,
            price=terms.price,
            max_usd=terms.max_cost,
            patience=Patience(max_tokens=terms.llm_max_tokens or MAX_TOKENS),
        )

    @classmethod
    def check(cls, terms: Terms) -> None:
        cls.by_terms(terms, Messages())

    @classmethod
    def patience_s(cls, terms: Terms) -> float:
        return USUAL.ask_s

    def __init__(
        self,
        spec: str,  # PROVIDER:MODEL[@URL]
        messages: Messages,  # gets every call as soon as it is over
        *,
        url: str | None = None,
        price: Sequence[float] | None = None,  # dollars for a million tokens: in, out and, if named, in from a cache
        max_usd: float | None = None,  # for all language models of the night together
        patience: Patience = USUAL,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._endpoint = Endpoint.parse(spec, url, environ)
        if max_usd is not None and price is None:
            raise NightError(
                f"--max-cost {max_usd:g} cannot be kept without a price; give --price IN,OUT in dollars for a million "
                f"tokens, 0,0 for a model of your own"
            )
        client_of(self._endpoint, patience).close()  # find errors of the setup before the night, not in it
        if self._endpoint.warning is not None:
            messages.say(self._endpoint.warning)
        self._messages, self._patience, self._price, self._max_usd = messages, patience, price, max_usd
        self._lock = threading.Lock()
        self._spent_usd: float | None = None  # by the night; None before the first call of this process
        model = re.sub(r"[^A-Za-z0-9._:/-]", "_", self._endpoint.model)
        self.source = f"{self.name}:{model}"[:SOURCE_CHARS]

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        """Return the edit of one answer, or of its correction; raise NoIdea where no answer could be used."""
        broken, wrong = briefing.broken, ""
        edited, name = (broken or briefing.parent).proposal.script, briefing.night.script
        asked = compose(briefing)
        for _ in range(TRIES):
            reply, wrong, edit = self._call(asked, briefing, lambda reply: self._edit(reply, edited, name))
            if edit is not None:
                repairs = broken.number if broken is not None else None
                return [Proposal.of(edit.script, edit.title, edit.hypothesis, self.source, repairs=repairs)]
            asked = ask_again(asked, reply.text, wrong)
        raise NoIdea(self._presentable(f"no answer could be used, the last because {wrong}"))

    def _call(
        self, asked: Conversation, briefing: Briefing, read: Callable[[Reply], Edited]
    ) -> tuple[Reply, str, Edited | None]:
        """Make one call and record it; return the answer with its edit, or with what is wrong with it.

        Raise NoIdea where there is no answer.
        """
        most_usd = self._usd(WRITTEN * asked.chars / CHARS_PER_TOKEN, self._patience.max_tokens)
        reply, edit, failure, wrong = Reply(), None, None, ""
        with self._within_cap(most_usd or 0.0, most_spent_usd(briefing.asks)) as costs_usd:
            started, start = utc_now(), time.monotonic()
            try:
                reply = ask(self._endpoint, self._patience, asked, self._messages.stopped)
                edit = read(reply)
            except (CallFailed, BadReply) as error:
                failure, wrong = error, self._presentable(f"{error}{_hint(reply, asked)}")
            usd = self._usd(reply.tokens_in, reply.tokens_out, reply.tokens_cached or 0, reply.tokens_written)
            is_charged = not isinstance(failure, CallFailed) or failure.charged
            call = Ask(
                *(briefing.number, self.source, started, time.monotonic() - start, self._endpoint.model),
                *(reply.tokens_in, reply.tokens_out, usd, wrong or None),
                usd_most=most_usd if usd is None and is_charged else None,
                tokens_cached=reply.tokens_cached,
            )
            self._messages.record(call)
            costs_usd.append(most_spent_usd([call]))
        if isinstance(failure, CallFailed):
            raise NoIdea(wrong) from failure
        return reply, str(failure or ""), edit

    def _edit(self, reply: Reply, script: str, name: str) -> Edited:
        if reply.declined:
            raise BadReply("the answer was declined: propose an ordinary edit of the training script")
        if reply.cut_off:
            raise BadReply(
                f"the answer was cut off, at {self._patience.max_tokens:,} tokens or where the context was full: "
                f"think and answer shorter, with SEARCH/REPLACE blocks rather than the whole script"
            )
        return read_reply(reply.text, script, name)

    # ---- costs -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _within_cap(self, most_usd: float, before_usd: float) -> Iterator[list[float]]:
        """Raise NoIdea once --max-cost is spent, where a call in flight counts as the most that it may cost.

        Yield the list that takes the costs. before_usd: spent by the night before the first call of this process.
        """
        costs_usd: list[float] = []
        if self._messages.stopped():
            raise NoIdea("not asked, because the night is stopping")
        with self._lock:
            spent_usd = before_usd if self._spent_usd is None else self._spent_usd
            if self._max_usd is not None and spent_usd >= self._max_usd:
                raise NoIdea(
                    f"${spent_usd:.2f} of --max-cost {self._max_usd:g} are spent, or may be; raise it to ask on"
                )
            self._spent_usd = spent_usd + most_usd
        try:
            yield costs_usd
        finally:
            with self._lock:
                self._spent_usd = (self._spent_usd or 0.0) + sum(costs_usd) - most_usd

    def _usd(
        self, tokens_in: float | None, tokens_out: float | None, cached: float = 0.0, written: float = 0.0
    ) -> float | None:
        """Return the dollars for a call; None without a price, or without counts of tokens.

        cached, written: those of tokens_in that the server had in its cache, or put there. Without a price, cached ones
        cost as others do, which is an upper bound.
        """
        if self._price is None or tokens_in is None or tokens_out is None:
            return None
        usd_in, usd_out, *rest = self._price
        usd_cached = rest[0] if rest else usd_in
        other = tokens_in - cached + (WRITTEN - 1) * written
        return (other * usd_in + cached * usd_cached + tokens_out * usd_out) / 1e6

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
    ours = (ask for ask in asks if source_name(ask.source) == LLM.name)
    return sum(ask.usd if ask.usd is not None else ask.usd_most or 0.0 for ask in ours)

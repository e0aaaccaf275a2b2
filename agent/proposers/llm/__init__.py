"""Propose edits by a language model: send it the night's facts, ask for one edit, and parse its answer strictly.

An answer is text. Only reply.py turns it into a script, and the script runs only in the sandbox. An unusable answer is
sent back once, with the error. chat.py says which server is asked and bounds a call in time and size, and
agent/proposers/prompts.py writes the question.
"""

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.clock import utc_now
from agent.errors import NightError, NoIdea
from agent.experiment import PROPOSER_CHARS, Ask, Options, Proposal, proposer_name
from agent.proposers.llm.chat import CallFailed, Endpoint, Patience, Reply, ask, client_of
from agent.proposers.llm.reply import BadReply, read_reply
from agent.proposers.prompts import Conversation, ask_again, compose
from agent.proposers.proposer import Around, Briefing, Messages, Need, Proposer
from agent.records.options import OF_THE_MODEL

TRIES = 2  # one answer, and one correction
USUAL = Patience()
CHARS_PER_TOKEN = 3  # fewer than usual, to bound the cost of a call whose tokens were not counted
MOST_CHARS_PER_TOKEN = 8  # a server that counts fewer tokens than this suggests has cut the question
WRITTEN = 2.0  # highest price of a token that a server puts into its cache, in tokens of input
FAILURE_CHARS = 400


class LLM(Proposer):
    """Propose edits by one language model.

    Raise NightError for an unusable spec or spending limit, and MachineError without a key or the provider's SDK.
    """

    name, help = "llm", "a language model"
    need = Need("llm", "openai:gpt-5", details=(*OF_THE_MODEL, "max_cost"))
    costs = True
    at_once = 4  # providers limit the rate, and a server at home is slower with more

    @classmethod
    def of(cls, around: Around) -> "LLM":
        return cls(around.options, around.messages)

    @classmethod
    def check(cls, options: Options) -> None:
        cls(options, Messages())

    def __init__(
        self,
        options: Options,
        messages: Messages,  # gets every call as soon as it is over
        patience: Patience = USUAL,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._endpoint = Endpoint.parse(options.llm or "", environ)
        if options.max_cost is not None and options.price is None:
            raise NightError(
                f"--max-cost {options.max_cost:g} cannot be kept without a price; give --price IN,OUT in dollars for a "
                f"million tokens, 0,0 for a model of your own"
            )
        self._options, self._messages = options, messages
        self._patience = replace(patience, max_tokens=options.llm_max_tokens or patience.max_tokens)
        client_of(self._endpoint, patience).close()  # find errors of the setup before the night, not in it
        self._lock = threading.Lock()
        self._spent_usd = 0.0  # cost of the night so far, calls in flight included
        model = re.sub(r"[^A-Za-z0-9._:/-]", "_", self._endpoint.model)
        self.proposer = f"{self.name}:{model}"[:PROPOSER_CHARS]

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        """Return the edit of one answer, or of its correction; raise NoIdea where no answer could be used."""
        conversation, wrong = compose(briefing), ""
        repairs = briefing.broken.number if briefing.broken is not None else None
        for _ in range(TRIES):
            reply, wrong, edit = self._call(conversation, briefing)
            if edit is not None:
                return [replace(edit, proposer=self.proposer, repairs=repairs)]
            conversation = ask_again(conversation, reply.text, wrong)
        raise NoIdea(self._presentable(f"no answer could be used, the last because {wrong}"))

    def _call(self, conversation: Conversation, briefing: Briefing) -> tuple[Reply, str, Proposal | None]:
        """Make one call and record it; return the answer with its edit, or with its error.

        Raise NoIdea if there is no answer, or if --max-cost is spent, so that no question is asked.
        """
        if self._messages.stopped():
            raise NoIdea("not asked, because the night is stopping")
        most_usd = self._usd(WRITTEN * conversation.chars / CHARS_PER_TOKEN, self._patience.max_tokens)
        self._reserve(most_usd or 0.0, most_spent_usd(briefing.asks))
        reply, edit, failure, wrong = Reply(), None, None, ""
        started, start = utc_now(), time.monotonic()
        try:
            reply = ask(self._endpoint, self._patience, conversation, self._messages.stopped)
            edit = self._edit(reply, briefing)
        except Exception as error:  # whatever it is, the call may have been paid for
            failure, wrong = error, self._presentable(f"{error}{_hint(reply, conversation)}")
        usd = self._usd(reply.tokens_in, reply.tokens_out, reply.tokens_cached or 0, reply.tokens_written)
        is_charged = not isinstance(failure, CallFailed) or failure.charged
        call = Ask(
            *(briefing.number, self.proposer, started, time.monotonic() - start, self._endpoint.model),
            *(reply.tokens_in, reply.tokens_out, usd, wrong or None),
            usd_most=most_usd if usd is None and is_charged else None,
            tokens_cached=reply.tokens_cached,
        )
        self._messages.record(call)
        with self._lock:
            self._spent_usd += most_spent_usd([call]) - (most_usd or 0.0)
        if isinstance(failure, CallFailed):
            raise NoIdea(wrong) from failure
        if failure is not None and not isinstance(failure, BadReply):
            raise failure
        return reply, str(failure or ""), edit

    def _edit(self, reply: Reply, briefing: Briefing) -> Proposal:
        self._endpoint.check_answer(reply.text)
        if reply.declined:
            raise BadReply("the answer was declined: propose an ordinary edit of the training script")
        if reply.cut_off:
            raise BadReply(
                f"the answer was cut off, at {self._patience.max_tokens:,} tokens or where the context was full: "
                f"think and answer shorter, with SEARCH/REPLACE blocks rather than the whole script"
            )
        return read_reply(reply.text, briefing.edited, briefing.night.script)

    # ---- costs -------------------------------------------------------------------------------------------------------

    def _reserve(self, most_usd: float, before_usd: float) -> None:
        """Count a call at its highest possible cost until it is over; raise NoIdea once --max-cost is spent.

        before_usd: spent by the night, as its journal has it; what this process has spent since is kept here.
        """
        with self._lock:
            self._spent_usd = max(self._spent_usd, before_usd)
            most = self._options.max_cost
            if most is not None and self._spent_usd >= most:
                raise NoIdea(f"${self._spent_usd:.2f} of --max-cost {most:g} are spent, or may be; raise it to ask on")
            self._spent_usd += most_usd

    def _usd(
        self, tokens_in: float | None, tokens_out: float | None, cached: float = 0.0, written: float = 0.0
    ) -> float | None:
        """Return the dollars for a call; None without a price, or without counts of tokens.

        cached, written: those of tokens_in that the server had in its cache, or put there. Without a price, cached ones
        cost as others do, which is an upper bound.
        """
        if self._options.price is None or tokens_in is None or tokens_out is None:
            return None
        usd_in, usd_out, *rest = self._options.price
        usd_cached = rest[0] if rest else usd_in
        other = tokens_in - cached + (WRITTEN - 1) * written
        return (other * usd_in + cached * usd_cached + tokens_out * usd_out) / 1e6

    def _presentable(self, sentence: str) -> str:
        return self._endpoint.without_key(sentence, FAILURE_CHARS)


def _hint(reply: Reply, conversation: Conversation) -> str:
    """Return a hint if the server seems to have cut the question: Ollama and others do so silently."""
    if reply.tokens_in is None or reply.tokens_in * MOST_CHARS_PER_TOKEN >= conversation.chars:
        return ""
    return (
        f" (of a question of {conversation.chars:,} characters it read {reply.tokens_in:,} tokens: give it a longer "
        f"context)"
    )


def most_spent_usd(asks: Sequence[Ask]) -> float:
    """Return the dollars spent on all language models; a call without token counts counts with its highest cost."""
    ours = (ask for ask in asks if proposer_name(ask.proposer) == LLM.name)
    return sum(ask.usd if ask.usd is not None else ask.usd_most or 0.0 for ask in ours)

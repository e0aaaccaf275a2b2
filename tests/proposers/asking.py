"""A language model at a loopback server, and the night that it is asked about."""

import pytest
from judged import scored_attempt
from llm_servers import KEY, Server
from nights import unigram
from samples import NIGHT

from agent.errors import NoIdea
from agent.experiment import Ask, Options, Proposal, Status
from agent.proposers.llm import LLM
from agent.proposers.llm.chat import Patience
from agent.proposers.proposer import Briefing, Messages

SCRIPT = unigram()
OLD = "SMOOTHING = 1.0  # added to every count  [0.01, 100.0] log"
NEW = OLD.replace("1.0", "0.5")
HEAD = "TITLE: less smoothing\nHYPOTHESIS: Counts are large.\n"


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def edit(search: str, replace: str, file: str = "train_mlx.py") -> str:
    return f"{HEAD}FILE: {file}\n{block(search, replace)}"


EDIT = edit(OLD, NEW)
WANTED = SCRIPT.replace(OLD, NEW)
QUICK = Patience(ask_s=30.0, retries=1, max_tokens=1000)
PROVIDERS = pytest.mark.parametrize("provider", ["openai", "anthropic"])
BASELINE = scored_attempt(0, 1.8, script=SCRIPT, status=Status.KEEP)
BRIEFING = Briefing(NIGHT, (BASELINE,), BASELINE, program="Lower val_bpb.")


class Model:
    """An LLM at a server, and what it recorded."""

    def __init__(
        self, server: Server, provider: str = "openai", key: str = KEY, patience: Patience = QUICK, **named: object
    ) -> None:
        self.asks: list[Ask] = []
        self.messages = Messages(self.asks.append)
        options = Options(llm=server.spec(provider), **named)  # type: ignore[arg-type]
        self.llm = LLM(options, self.messages, patience, {f"{provider.upper()}_API_KEY": key})

    def proposals(self, briefing: Briefing = BRIEFING) -> list[Proposal]:
        return self.llm.proposals(briefing)

    def refusal(self, briefing: Briefing = BRIEFING) -> str:
        with pytest.raises(NoIdea) as caught:
            self.llm.proposals(briefing)
        sentence = str(caught.value)
        assert "\n" not in sentence
        assert KEY not in sentence
        return sentence

"""Write text with a kept model: nightshift sample."""

import math
import secrets
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from agent.cli.find import BEST, attempt_meant
from agent.cli.options import PositiveInt, Seed
from agent.errors import NightError
from agent.model.best import weights_of
from agent.model.sampling import sample as continue_text
from agent.night.lock import like_ctrl_c
from agent.text import harmless_lines


def sample(
    text: str,
    attempt: str = BEST,
    /,
    *,
    tokens: PositiveInt = 200,
    temperature: Annotated[float, Parameter(validator=Number(gte=0, lte=10))] = 0.8,
    seed: Seed | None = None,
) -> None:
    """Continue a text with the weights that a night kept, in the night's sandbox.

    The model has read little and knows nothing: look at its text to see what it has learnt. Ctrl-C ends it.

    Args:
        text: the beginning, which the model continues
        attempt: whose weights, as in 4, wide:4, wide:best (default: best)
        tokens: to add, at most (default: 200)
        temperature: how freely it draws; 0 takes the likeliest token each time (default: 0.8)
        seed: gives the same text again (default: another each time)
    """
    if math.isnan(temperature):
        raise NightError("--temperature nan is no number from 0 to 10")
    place, record, chosen = attempt_meant(attempt)
    place.check_own(record.tag)
    weights = weights_of(place, record, chosen)
    seed = secrets.randbits(32) if seed is None else seed
    with like_ctrl_c():
        more = continue_text(
            record.night, place.folder(record.tag), weights.attempt.proposal.script, weights.path, text,
            tokens=tokens, temperature=temperature, seed=seed,
        )  # fmt: skip
    print(f"{harmless_lines(text)}{more}")

"""Write a prompt from its template: prompts/ holds one file each, in Jinja2's form, for people to read and change."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent.proposers.author.excerpts import quoted
from agent.text import counted, one_line

if TYPE_CHECKING:
    from jinja2 import Environment


def written(name: str, **facts: object) -> str:
    """Return the template prompts/NAME.md with these facts; raise jinja2.UndefinedError for one that is missing."""
    return _templates().get_template(f"{name}.md").render(facts).strip()


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # most commands write no prompt

    folder = FileSystemLoader(Path(__file__).parents[1] / "prompts")
    # plain text for a model, no page
    templates = Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    templates.filters |= {"one_line": one_line, "counted": counted, "quoted": quoted}
    return templates

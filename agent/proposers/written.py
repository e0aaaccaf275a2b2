"""Write a prompt from its template: prompts/ holds one file each, in Jinja2's form, for people to read and change."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def written(name: str, **facts: object) -> str:
    """Return the template prompts/NAME.md with these facts; raise jinja2.UndefinedError for one that is missing."""
    return _templates().get_template(f"{name}.md").render(facts)


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # most commands write no prompt

    folder = FileSystemLoader(Path(__file__).parent / "prompts")
    # plain text for a model, no page
    return Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)

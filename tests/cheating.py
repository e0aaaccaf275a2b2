"""Scripts that try to cheat, and honest ones that look odd: each is one self-contained training script.

cheats/base.py is an honest script; a file in cheats/caught/ or cheats/honest/ says in its first line what it does, and
its code is put in front of the base's last lines, where its definitions replace the base's. A cheat may look up in
WORLD what a well-informed attacker would know: where the user's repository, home and caches are, whom to talk to.
What is in cheats/known/ gets through: each says why, and what bounds it. What several have in common stands in
cheats/parts/: a line `# with: NAME` puts it in front.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "cheats"
BASE = (FOLDER / "base.py").read_text()
WITH = re.compile(r"(?m)^# with: (\w+)$")
GUARD = '\n\nif __name__ == "__main__":'


@dataclass(frozen=True)
class Script:
    """One file in a folder of cheats/."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def tries(self) -> str:
        """What it does, in one sentence."""
        return (ast.get_docstring(ast.parse(self.path.read_text())) or "").partition("\n\n")[0]

    @property
    def is_honest(self) -> bool:
        return self.path.parent.name == "honest"

    def compose(self, world: Mapping[str, object], base: str = BASE) -> str:
        before, guard, after = base.partition(GUARD)
        own = self.path.read_text()
        parts = [(FOLDER / "parts" / f"{name}.py").read_text() for name in WITH.findall(own)]
        return "\n".join([before, f"WORLD = {dict(world)!r}\n", *parts, own, f"{guard}{after}"])


CHEATS = tuple(Script(path) for path in sorted((FOLDER / "caught").glob("*.py")))
KNOWN = tuple(Script(path) for path in sorted((FOLDER / "known").glob("*.py")))
HONEST = tuple(Script(path) for path in sorted((FOLDER / "honest").glob("*.py")))

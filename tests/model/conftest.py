"""A night with a kept script, made once for all tests that only look at it or copy it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nights import Grounds, make_repository, unigram

FIRST, KEPT = (unigram(SHARPNESS=sharpness) for sharpness in (0.5, 0.9))


@pytest.fixture(scope="module")
def kept_night(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Grounds]:
    """Make a night of two attempts; the second is its best."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        grounds = Grounds(make_repository(tmp_path_factory.mktemp("kept") / "user", FIRST))
        grounds.try_scripts("t", [KEPT])
        yield grounds

"""Choose the attempts of a long night that it learns from. Pure, and without numpy: `status` asks for them, too."""

from collections.abc import Sequence

from agent.experiment import Attempt, History

LATEST, BLOCK = 300, 100  # attempts that are learnt from: so many, and less than a block more


def recent(history: History) -> Sequence[Attempt]:
    """Return the latest attempts with all their ancestors, in their order; a night of LATEST attempts is whole.

    A decision is about an edit and the line of scripts that it stands on, so that line is always there. All others only
    teach what edits bring and how far seeds move scores, and that changes in the course of a night: early edits find
    large gains, late ones hardly any, and the script that they edit is another one. Hundreds of edits tell it as well
    as thousands, and a decision costs the same in the tenth week as in the first night. Old attempts leave by the
    block, so that what was learnt from the first of them stays good for many decisions.
    """
    if len(history) < LATEST + BLOCK:
        return history
    wanted = set(recent_numbers([(one.number, one.parent) for one in history]))
    return [one for one in history if one.number in wanted]


def recent_numbers(parents: Sequence[tuple[int, int | None]]) -> list[int]:
    """Return the numbers of those attempts, in their order, from the numbers of all and of what each was made from."""
    first = max(0, (len(parents) - LATEST) // BLOCK * BLOCK)
    known, found = dict(parents), {number for number, _ in parents[first:]}
    for _, parent in parents[first:]:
        while parent is not None and parent not in found and parent in known:
            found.add(parent)
            parent = known[parent]
    return sorted(found)

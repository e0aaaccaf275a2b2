"""Make the scripts of a study's arms from its plan: the committed script or another one, with an arm's edits."""

from collections.abc import Mapping
from pathlib import Path

from agent.errors import NightError, NightshiftError
from agent.invocation import typed
from agent.judging.study_plan import Arm, Plan, line_of
from agent.proposers.catalogue.catalogue import applied
from agent.proposers.catalogue.files import idea_folders, read_idea
from agent.records.place import Place, read_script
from agent.script.contract import check_script, imports_of_edits, read_text
from agent.script.dials import fingerprint, is_number, read_dials, set_dials, show
from agent.script.merge import check_patch, patched


def scripts_of(plan: Plan, text: str, file: Path, place: Place, device_kind: str) -> Mapping[str, str]:
    """Return arm → script; raise NightError, with the line of the plan, for one that is missing or cannot be run."""
    scripts: dict[str, str] = {}
    base = read_script(place)  # for the first arm, and that for the others: what it imports is all that runs have
    for number, arm in enumerate(plan.arms):
        try:
            script = _script_of(arm, file.parent, place, device_kind)
            check_script(script, arm.name, imports_of_edits(base))
            base = script if number == 0 else base
            same = [name for name, other in scripts.items() if fingerprint(other) == fingerprint(script)]
            if same:
                raise NightError(f"it is the script of arm {same[0]} again; change something in it")
        except NightshiftError as error:
            line = line_of(text, "arm", number, "name")
            raise NightError(f"{file} line {line}: arm {arm.name} cannot be run: {error}") from error
        scripts[arm.name] = script
    return scripts


def _script_of(arm: Arm, folder: Path, place: Place, device_kind: str) -> str:
    script = read_script(place) if arm.script is None else read_text(folder / arm.script)
    for name in arm.patches:
        patch, edited = read_text(folder / name), arm.script or place.script
        check_patch(patch, edited)
        script = patched(patch, script) or ""
        if not script:
            raise NightError(f"{name} does not apply to {edited} with the patches before it; make it again")
    if arm.idea is not None:
        files = (folder / f"{arm.idea}.patch" for folder in idea_folders(place.script_path))
        known = next((file for file in files if file.is_file()), None)
        if known is None:
            raise NightError(f"there is no idea {arm.idea}; see all with: {typed('ideas')}")
        script = applied(read_idea(known), script, (), device_kind)
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in arm.dials.items()}
    for dial in read_dials(script, device_kind, strict=False):
        if dial.name in values and is_number(dial.value) and not is_number(values[dial.name]):
            raise NightError(
                f"{dial.name} is {values[dial.name]!r}, and {show(dial.value)} in the script; write a number"
            )
    return set_dials(script, device_kind, values)

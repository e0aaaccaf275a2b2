"""Write nights as event files of TensorBoard: a folder an attempt, and one for the night as a whole."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.errors import MachineError
from agent.invocation import command_for
from agent.records.place import Place
from agent.script.dials import Value
from agent.text import harmless
from agent.view.export.folder import replaced
from agent.view.export.sessions import Session, sessions_of
from agent.view.facts.nouns import NightFacts
from agent.view.facts.series import progress

KIND = "tensorboard"
VERSION = "brain.Event:2"  # the first record of each event file


def write_tensorboard(place: Place, folder: Path, nights: Sequence[NightFacts]) -> str:
    """Write the event files; return the command that shows them. Raise MachineError without the extra."""
    try:
        import tensorboardX  # noqa: F401, this alone tells whether it is there
    except ImportError as error:
        raise MachineError(
            f"the export for TensorBoard needs tensorboardX; install it with: {command_for('tensorboard')}"
        ) from error
    with replaced(folder, KIND, [night.tag for night in nights]) as aside:
        for night in nights:
            _write_night(aside / night.tag, night)
        for night, session in sessions_of(place, nights):
            _write_session(aside / night.tag / session.name, session)
    return f"tensorboard --logdir {folder}"


class _Events:
    """Write one event file, in the thread of the caller: SummaryWriter would start a thread for each attempt."""

    def __init__(self, folder: Path) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import RecordWriter

        folder.mkdir(parents=True)
        self._event = Event
        self._file = RecordWriter(str(folder / "events.out.tfevents.0.nightshift"))
        self._write(Event(file_version=VERSION))

    def _write(self, event: Any) -> None:
        self._file.write(event.SerializeToString())

    def summary(self, summary: Any, step: int, at_s: float) -> None:
        self._write(self._event(summary=summary, step=step, wall_time=at_s))

    def scalar(self, name: str, value: float, step: int, at_s: float) -> None:
        from tensorboardX.summary import scalar

        self.summary(scalar(name, value), step, at_s)

    def close(self) -> None:
        self._file.flush()
        self._file.close()


def _write_night(folder: Path, night: NightFacts) -> None:
    """Write the night's own series: each attempt's score, and the incumbent's, by the number of the attempt."""
    events, course = _Events(folder / "night"), progress(night)
    for point in course.points:
        if point.val_bpb is not None:
            events.scalar("night/val_bpb", point.val_bpb, point.number, float(point.number))
    for step in course.staircase:
        events.scalar("night/incumbent_bpb", step.mean_bpb, step.number, float(step.number))
    events.close()


def _write_session(folder: Path, session: Session) -> None:
    from tensorboardX.summary import hparams

    events = _Events(folder)
    config = {name: _plain(value) for name, value in (session.words | session.dials).items() if value is not None}
    metrics = {f"final/{name}": value for name, value in session.metrics.items()}
    for summary in hparams(config, metrics):
        events.summary(summary, 0, session.ended_s)
    for name, points in session.curves.items():
        for point in points:
            events.scalar(name, point.value, point.step, point.at_s)
    for name, value in metrics.items():
        events.scalar(name, value, 0, session.ended_s)
    events.close()


def _plain(value: Value) -> bool | int | float | str:
    """Return a hyperparameter as TensorBoard has it."""
    if isinstance(value, bool | int | float):
        return value
    return harmless(value) if isinstance(value, str) else json.dumps(value)

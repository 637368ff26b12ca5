"""Compares the response times of simulated devices with those of a recording.

A recording is cut in two: a device is calibrated on the first half, and the second half is replayed on it. The second
half is not used for calibration, so that the comparison tests the model.
"""

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from emmclab.calibration.calibrate import calibrate
from emmclab.calibration.fit_sources import Fitted
from emmclab.calibration.validation_groups import Judgement, JudgementFields, Recording, TimeSpread
from emmclab.core_types import Calibration
from emmclab.errors import EmmclabError, UnsupportedError
from emmclab.runtime.files import folder_aside, written_files
from emmclab.runtime.parquet import database
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.simulation.result_text import durability_unknown, is_buffered, mode_line
from emmclab.simulation.run_options import RunOptions, SimulationProgress
from emmclab.traces.reading import read
from emmclab.traces.trace import Ledger, Trace

#: Minimum number of completed requests of a recording: each half then has 50, enough for a median.
LEAST_REQUESTS = 100
#: Minimum number of completed requests in the second half. It may be the shorter half, because the recording is cut at
#: an idle time after the middle.
_LEAST_JUDGED = 40
#: Name of the temporary copy of a recording. Each half of the recording is read from this copy.
_COPY = "whole.parquet"
#: Minimum capacity of the calibrated device, and the maximum that `calibrate` allows, in GB.
_USUAL_GB, _MOST_GB = 32, 1024
#: Name of the device model that is calibrated on the first half of the recording.
CALIBRATED = "calibrated"
#: Name of the prediction without a device model: the median of the first half by operation and size.
LOOKUP = "table of medians"
#: Text in the note of a trace which shows that the trace contains zone commands.
_ZONES = "commands to zones"

#: Function that is called before each step with a description of the step.
Steps = Callable[[str], None]


class Cut(NamedTuple):
    """The point at which a recording is cut in two."""

    first: int
    """Requests before the cut: the device is calibrated on them."""
    second: int
    """Requests from the cut on: they are replayed."""
    after_s: float
    """Time from the first arrival of the recording to the cut, s."""
    is_idle: bool
    """Whether the device had no pending request at the cut."""
    first_by_operation: dict[str, int]
    """Requests with completions of each operation before the cut, the most frequent one first."""
    second_by_operation: dict[str, int]
    """Requests with completions of each operation from the cut on, the most frequent one first."""


class ModelFields(JudgementFields):
    """The JSON form of a `Model`."""

    name: str
    kind: str
    note: str | None
    mode: str | None


class HalvesFields(TypedDict):
    """Recorded response times of both halves of a recording, with the fields of `TimeSpread`."""

    first_half: dict[str, object]
    second_half: dict[str, object]


class ValidationFields(TypedDict):
    """The JSON form of a `Validation`; `cut` has the fields of `Cut`."""

    trace: str
    ledger: Ledger
    cut: dict[str, object]
    recorded: HalvesFields
    models: list[ModelFields]
    refused: dict[str, str]
    #: Fields of the calibration, as in `Calibration`; None without a calibration.
    calibration: dict[str, Any] | None


@dataclass(frozen=True)
class Model:
    """A model that predicted the second half, and the quality of its prediction.

    Attributes:
        name: name of the device.
        kind: `calibrated`, `device` (given by name), or `table` (no device: medians of the first half).
        note: reasons not to trust the comparison; empty if there are none.
        mode: mode of the replay with its reason, in words; empty without a replay.
        judgement: comparison of simulated with recorded times.
    """

    name: str
    kind: str
    note: str
    mode: str
    judgement: Judgement

    def to_dict(self) -> ModelFields:
        """Return all fields as JSON values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "note": self.note or None,
            "mode": self.mode or None,
            **self.judgement.to_dict(),
        }


@dataclass(frozen=True)
class Validation:
    """A recording, and the predictions of models for its second half.

    Attributes:
        trace: name of the recording.
        ledger: counts of the records that were kept, changed and lost when it was read.
        cut: the point at which it is cut in two.
        first: recorded response times of the first half.
        second: recorded response times of the second half.
        calibration: what `calibrate` returned for the first half; None if it does not determine a device.
        models: the models that predicted the second half, the calibrated device first.
        refused: reasons by the name of each model that could not be tried.
    """

    trace: str
    ledger: Ledger
    cut: Cut
    first: TimeSpread
    second: TimeSpread
    calibration: Calibration | None
    models: Sequence[Model]
    refused: Mapping[str, str]

    @property
    def main(self) -> Model:
        """The model that the headline reports: the calibrated device or, if there is none, the first model."""
        return self.models[0]

    @property
    def simulated(self) -> list[Model]:
        """The models that are simulated devices."""
        return [model for model in self.models if model.kind != "table"]

    def to_dict(self) -> ValidationFields:
        """Return all fields as JSON values.

        >>> import emmclab
        >>> found = validate(emmclab.read(emmclab.bundled()[2])).to_dict()
        >>> [group["group"] for group in found["models"][0]["by"]["operation"]]
        ['write', 'durable write', 'flush']
        """
        return {
            "trace": self.trace,
            "ledger": self.ledger,
            "cut": self.cut._asdict(),
            "recorded": {"first_half": self.first._asdict(), "second_half": self.second._asdict()},
            "models": [model.to_dict() for model in self.models],
            "refused": dict(self.refused),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
        }


def validate(
    trace: Trace,
    devices: Sequence[Device] = (),
    *,
    base: Device | None = None,
    mode: str = "auto",
    precondition: str = "none",
    wrap_addresses: bool = False,
    seed: int = 1,
    step: Steps = lambda _description: None,
    progress: SimulationProgress | None = None,
) -> Validation:
    """Calibrate a device on the first half of a recording, replay the second half, and compare the times.

    Args:
        trace: a recording with completions.
        devices: further devices that are judged without calibration.
        base: base of the calibrated device, as for `calibrate`.
        mode: mode of the replay of the second half, as for `Device.simulate`.
        precondition: data on the devices before the replay, as for `Device.simulate`.
        wrap_addresses: as for `Device.simulate`; the calibrated device is large enough if possible.
        seed: seed of the calibration and of the replay.
        step: called before each step with its description.
        progress: called after each batch of a replay.

    Raises:
        UnsupportedError: the recording cannot be judged: it has no completions, too few of them, or zones.
        EmmclabError: the trace cannot be read, or no model could be tried.

    >>> import emmclab
    >>> found = validate(emmclab.read(emmclab.bundled()[2]))
    >>> found.cut.first, found.cut.second, [model.name for model in found.models]
    (1997, 1997, ['calibrated', 'table of medians'])
    """
    if trace.is_synthetic:
        raise UnsupportedError(f"{_trace_name(trace)}: a synthesised trace has no measured times", hint=_RECORD)
    with folder_aside(Path(tempfile.gettempdir())) as folder, database(folder) as connection:
        step(f"read {trace.name}")
        trace.write(folder / _COPY)
        written_files.pop()  # A temporary file is not an output of the command.
        recording = Recording(connection, folder / _COPY)
        _refuse(trace, recording)
        cut = _cut(trace, recording)
        replay = _Replay(recording, trace, cut, folder, step)
        calibration = replay.calibrated(base, seed)
        options: RunOptions = {"mode": mode, "precondition": precondition, "seed": seed, "progress": progress}
        options["wrap_addresses"] = wrap_addresses
        if calibration is not None:
            device = Device.from_toml(calibration.toml)
            # The calibrated device covers the recorded addresses up to a maximum capacity. Addresses beyond its end
            # wrap.
            replay.run(device, "calibrated", {**options, "wrap_addresses": True})
        for device in devices:
            replay.run(device, "device", options)
        if not replay.models:
            raise _no_model(trace, replay.refused)
        table = Model(LOOKUP, "table", "", "", recording.judged_by_table(cut.first))
        return Validation(
            trace.name,
            trace.ledger,
            cut,
            recording.spread(before=cut.first),
            recording.spread(since=cut.first),
            calibration,
            [*replay.models, table],
            replay.refused,
        )


class _Replay:
    """Replays the second half of a recording on one device after the other."""

    def __init__(self, recording: Recording, trace: Trace, cut: Cut, folder: Path, step: Steps) -> None:
        cut_time = f"{round(cut.after_s * 1e9)}ns"
        self._first, self._second = (read(folder / _COPY, only={side: cut_time}) for side in ("to", "from"))
        self._recording, self._trace, self._cut = recording, trace, cut
        self._rows, self._step = folder / "run.parquet", step
        self.models: list[Model] = []
        self.refused: dict[str, str] = {}

    def calibrated(self, base: Device | None, seed: int) -> Calibration | None:
        """Return the calibration on the first half; None if the first half does not determine a device."""
        self._step(f"calibrate on the first half of {self._trace.name}")
        capacity = min(_MOST_GB, max(_USUAL_GB, self._recording.facts.span_gb))
        source = self._trace.header["source"] or self._trace.name
        self._first.header["source"] = f"the first half of {source}"
        try:
            return calibrate(self._first, name=CALIBRATED, capacity_gb=capacity, seed=seed, base=base)
        except EmmclabError as error:
            self._refuse(CALIBRATED, error)
            return None

    def run(self, device: Device, kind: str, options: RunOptions) -> None:
        """Replay the second half on a device, and compare the times; if that is not possible, record the reason."""
        name = CALIBRATED if kind == "calibrated" else self._unique_name(device.name)
        self._step(f"replay the second half of {self._trace.name} on {name}")
        try:
            run_options: RunOptions = {**options, "events": self._rows, "provenance": False}
            result = device.simulate(self._second, **run_options)
        except EmmclabError as error:
            self._refuse(name, error)
            return
        written_files.pop()
        judgement = self._recording.judged_by_run(self._cut.first, self._rows)
        note = _note(result, device, self._trace)
        self.models.append(Model(name, kind, note, mode_line(result), judgement))

    def _refuse(self, name: str, error: EmmclabError) -> None:
        """Record the reason why a device could not be tried; errors of the operating system are raised instead."""
        if error.errno is not None:
            raise error
        reason = _under_its_name(error, self._recording, self._trace)
        self.refused[name] = f"{reason} ({error.hint})" if error.hint else reason

    def _unique_name(self, name: str) -> str:
        """Return the name of a device; append a number if another model of this validation has this name."""
        names = {CALIBRATED, LOOKUP, *self.refused, *(model.name for model in self.models)}
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        return name if name not in names else next(candidate for candidate in numbered if candidate not in names)


_RECORD = "give a recording of a device, with completions; `emmclab record` makes one"


def _trace_name(trace: Trace) -> str:
    """Return the file of a trace, or its name if it has no file."""
    return trace.path or trace.name


def _refuse(trace: Trace, recording: Recording) -> None:
    name, facts = _trace_name(trace), recording.facts
    if len(trace.devices) > 1:
        try:
            recording.refuse_several_devices()
        except EmmclabError as error:
            raise UnsupportedError(
                _under_its_name(error, recording, trace), kind=error.kind, field=error.field, hint=error.hint
            ) from None
    if facts.appends or _ZONES in (trace.header["note"] or ""):
        raise UnsupportedError(
            f"{name}: the recorded device has zones, and no zoned device can be calibrated",
            hint="give a recording of a device without zones",
        )
    if not facts.completed:
        raise UnsupportedError(
            f"{name}: none of its requests has a completion after its arrival ({facts.requests:,} in all)", hint=_RECORD
        )
    if facts.completed < LEAST_REQUESTS:
        raise UnsupportedError(
            f"{name}: too few requests have a completion: {facts.completed:,}, and at least {LEAST_REQUESTS} "
            "are needed, because one half is for calibration, the other for comparison",
            hint="give a longer recording with more completions",
        )


def _cut(trace: Trace, recording: Recording) -> Cut:
    """Cut a recording after half of its requests, at the next time at which the device is idle."""
    cut = recording.cut()
    if cut is None:
        raise UnsupportedError(
            f"{_trace_name(trace)}: all its requests arrive at the same time, so it cannot be divided into halves",
            hint="give a recording whose requests do not all arrive at the same time",
        )
    row, after_ns, is_idle = cut
    if (count := recording.spread(since=row).requests) < _LEAST_JUDGED:
        raise UnsupportedError(
            f"{_trace_name(trace)}: too few requests of the second half have a completion and ended without "
            f"an error: {count:,}, and at least {_LEAST_JUDGED} are needed",
            hint="give a recording that has completions up to its end, or cut off its end with `--only to=TIME`",
        )
    return Cut(
        row,
        recording.facts.requests - row,
        after_ns / 1e9,
        is_idle,
        recording.kinds(before=row),
        recording.kinds(since=row),
    )


def _under_its_name(error: EmmclabError, recording: Recording, trace: Trace) -> str:
    """Return an error message in which the path of a temporary copy is replaced by that of the recording."""
    return str(error).replace(str(recording.path), _trace_name(trace))


def _no_model(trace: Trace, refused: Mapping[str, str]) -> UnsupportedError:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    return UnsupportedError(
        f"{_trace_name(trace)}: no device could be tried: {reasons}",
        hint="give a device with `--device` if none can be calibrated on the first half of the recording",
    )


def _note(result: Result, device: Device, trace: Trace) -> str:
    """Return the reasons not to trust a comparison with a device; empty if there are none."""
    notes = []
    if stopped := result.run.stopped:
        notes.append(f"stopped before the end: {stopped}")
    if trace.name in Fitted.device(device).sources:
        notes.append("was fitted to all of this recording, including the second half")
    if wrapped := result.requests.wrapped_pct:
        notes.append(f"{wrapped:.1f} % of the requests lie beyond the device and were wrapped")
    if is_buffered(result) and (free := durability_unknown(result, "")):
        notes.append(free)
    return "; ".join(notes)

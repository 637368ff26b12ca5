"""Chooses how devices are preconditioned before options are compared: as requested, or to match the recording."""

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from pathlib import Path

from emmclab.errors import EmmclabError
from emmclab.runtime.document import signed
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.simulation.result_text import recorded_mean_text, state_text, trusted
from emmclab.simulation.run_options import RunOptions, parse_precondition

#: Value of the preconditioning option that requests an automatic choice of the device state.
AUTO = "auto"
#: Device state that is assumed if nothing is known. On a new device, garbage collection options have no effect.
USED = "used:1y"
NEW = "none"
#: State of a device that was overwritten until no free blocks are left. It takes the longest time to prepare.
STEADY = "steady"
#: Device states that are tried, the simplest first: by kind of data, then by amount.
STATES = (NEW, "sequential:50", "sequential:90", "random:50", "random:90", USED)

#: Maximum size of the images of preconditioned devices, bytes.
IMAGES_BYTES = 4 << 30

#: Maximum difference between the simulated and the recorded mean response that counts as a match, in percent.
MEETS_PCT = 10.0
#: If two device states have responses that differ by at most this percentage of the recorded response, the simpler
#: state is chosen.
ALIKE_PCT = 1.0
#: Ratio of simulated to recorded mean response (or its inverse) above which the recorded device is another one. The
#: best matching device state is used.
_OTHER = 2.0
#: If a simulated new device is this many times faster than the recorded one, they are different devices. Stored data
#: does not slow a device down that much.
_OTHER_NEW = 10.0

#: Ways in which the device state was chosen.
GIVEN, RECORDED, ASSUMED = "given", "recorded", "assumed"


@dataclass(frozen=True)
class StateTrial:
    """A preconditioned state of the device whose mean response time was compared with the recorded one."""

    precondition: str
    #: Mean response in ms; None if the run ended early, was overloaded or was impossible, as `reason` explains.
    mean_response_ms: float | None
    error_pct: float | None
    reason: str = ""


@dataclass(frozen=True)
class State:
    """State in which the compared devices start (preconditioning), and how well it matches the recording."""

    precondition: str
    #: How the state was chosen: `given`, `recorded` (of those tried, nearest to the recorded response) or `assumed`.
    chosen: str
    simulated_ms: float
    #: Recorded mean response in ms; None if no completion is recorded.
    recorded_ms: float | None
    error_pct: float | None
    #: Reason why the state is assumed; empty if the state was given or recorded.
    reason: str = ""
    tried: tuple[StateTrial, ...] = ()
    #: Less simple device states that match the recording equally well.
    alike: tuple[str, ...] = ()

    @property
    def meets(self) -> bool | None:
        """Whether the mean response is within `MEETS_PCT` of the recorded one; None if none is recorded."""
        return None if self.error_pct is None else abs(self.error_pct) <= MEETS_PCT

    @property
    def line(self) -> str:
        """Return the recorded and the simulated response, and how the state was chosen."""
        text = state_text(self.precondition)
        if self.recorded_ms is None:
            return "" if self.chosen == GIVEN else f"assumed state: {text}; {self.reason}"
        compared = f"{recorded_mean_text(self.simulated_ms, self.recorded_ms, self.error_pct)}; state: {text}"
        if self.chosen == GIVEN:
            return f"{compared}, as given"
        if self.chosen == ASSUMED:
            return f"{compared}, assumed: {self.reason}"
        if not self.meets:
            return f"{compared}, the nearest of {len(self.tried)} tried"
        line = f"{compared}, the nearest to the recorded response"
        return f"{line}; equally near: {', '.join(self.alike)}" if self.alike else line

    @property
    def caution(self) -> str:
        """Return a warning that no tried device state matches the recording; empty if one does, or none was tried."""
        if self.chosen != RECORDED or self.meets:
            return ""
        return (
            f"no state of the device matches the recorded mean response within {MEETS_PCT:.0f} %: the error of "
            f"the nearest is {signed(self.error_pct or 0.0)} %, so the recorded device may gain more or less"
        )

    @property
    def tried_line(self) -> str:
        """Return the mean response time in each device state that was tried; empty if none was."""
        parts = [
            f"{trial.precondition} {trial.reason}"
            if trial.mean_response_ms is None
            else f"{trial.precondition} {trial.mean_response_ms:,.2f}"
            for trial in self.tried
        ]
        return f"mean response by state, ms: {', '.join(parts)}" if parts else ""

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON values, together with `meets` and the tolerance that it uses."""
        fields = asdict(self) | {"tried": [asdict(trial) for trial in self.tried], "alike": list(self.alike)}
        return fields | {"meets": self.meets, "tolerance_pct": MEETS_PCT}


def settle(
    run: Callable[[str | Path], Result], pool: Executor, replay: RunOptions, *, collects: bool
) -> tuple[State, Result]:
    """Choose the state of the devices that will be compared, and return it with the run in this state.

    `run` simulates the unchanged device in a state. If `replay` gives a state, this state is used. Otherwise each state
    is simulated, and the states are compared by their error: the distance of the simulated mean response from the
    recorded one. Of all states within `ALIKE_PCT` of the smallest error, the first in the order of `STATES` is used.
    `STEADY` is tried only if all other states are too fast.

    The state is assumed if the recording has no completions, or if no state explains the difference between the device
    and the recorded one. It is then `USED`, or new if the device does not collect garbage.
    """
    requested = replay.get("precondition")
    if requested not in (None, AUTO):
        base = pool.submit(run, requested).result()
        return _state(base, GIVEN), base
    # This run finishes before other runs open the traces. It fails if a trace is a pipe, which cannot be read twice.
    new = pool.submit(run, NEW).result()
    if not collects:
        return _state(new, ASSUMED, "it collects no garbage"), new
    if reason := _unlike(new, replay):
        base = pool.submit(run, USED).result()
        return _state(base, ASSUMED, reason), base
    runs: dict[str, Result | str] = {NEW: new}
    runs |= _state_trials({state: pool.submit(run, state) for state in STATES[1:]})
    if all(_error(result) < -MEETS_PCT for result in _sound(runs).values()):
        runs |= _state_trials({STEADY: pool.submit(run, STEADY)})
    return _nearest(runs, lambda: pool.submit(run, USED).result())


def _nearest(runs: Mapping[str, Result | str], used: Callable[[], Result]) -> tuple[State, Result]:
    """Return the state whose response time is nearest to the recorded one; if none is near, the assumed state."""
    sound = _sound(runs)
    tried = tuple(_described(name, run) for name, run in runs.items())
    least = min(abs(_error(run)) for run in sound.values())
    near = [name for name, run in sound.items() if abs(_error(run)) <= least + ALIKE_PCT]
    base = sound[near[0]]
    ratio = 1 + _error(base) / 100
    if not 1 / _OTHER <= ratio <= _OTHER:
        used_run = runs[USED]
        base = used() if isinstance(used_run, str) else used_run
        reason = f"no state tried is within {_OTHER:g} times the recorded response"
        return _state(base, ASSUMED, reason, tried), base
    return _state(base, RECORDED, "", tried, tuple(near[1:])), base


def _state(
    base: Result, chosen: str, reason: str = "", tried: Iterable[StateTrial] = (), alike: tuple[str, ...] = ()
) -> State:
    recorded = base.recorded.response.all
    return State(
        precondition=str(base.options["precondition"]),
        chosen=chosen,
        simulated_ms=base.response.mean_response_ms,
        recorded_ms=recorded.recorded_ms,
        error_pct=recorded.error_pct,
        reason=reason,
        tried=tuple(tried),
        alike=alike,
    )


def _unlike(new: Result, replay: RunOptions) -> str:
    """Return why the recording cannot determine the state of the device; empty if it can."""
    recorded = new.recorded.response.all
    if recorded.error_pct is None:
        return "no response times are recorded"
    paced = replay.get("mode") == "back_to_back" or replay.get("rate", 1.0) != 1.0
    if paced or replay.get("layers"):
        return "the requests do not reach the device as recorded"
    if not trusted(new):
        return "a new device does not serve the trace as it was recorded"
    ratio = 1 + recorded.error_pct / 100
    if ratio > _OTHER:
        return f"a new device answers {ratio:.1f} times as slowly as the recorded one"
    if ratio * _OTHER_NEW < 1:
        return f"a new device answers {1 / ratio:.0f} times as fast as the recorded one"
    return ""


def _state_trials(runs: Mapping[str, Future[Result]]) -> dict[str, Result | str]:
    """Return the run in each device state, or the reason why it is impossible."""
    results: dict[str, Result | str] = {}
    for name, future in runs.items():
        try:
            results[name] = future.result()
        except EmmclabError as error:
            results[name] = f"is not possible: {error}"
    return results


def _sound(runs: Mapping[str, Result | str]) -> dict[str, Result]:
    return {name: run for name, run in runs.items() if not isinstance(run, str) and trusted(run)}


def _error(run: Result) -> float:
    """Return the error of a run's response time in percent; the trace must contain response times."""
    error = run.recorded.response.all.error_pct
    if error is None:
        raise ValueError("the trace has no recorded response times")
    return error


def _described(name: str, run: Result | str) -> StateTrial:
    if isinstance(run, str):
        return StateTrial(name, None, None, run)
    if not trusted(run):
        return StateTrial(name, None, None, "ended early or was overloaded")
    return StateTrial(name, run.response.mean_response_ms, _error(run))


def collects(device: Device) -> bool:
    """Return whether a device collects garbage.

    >>> collects(Device.preset("nexus5")), collects(Device.preset("ssdsim"))
    (True, False)
    """
    policy: str = next(row.value for row in device.explain() if row.key == "gc.policy")
    return policy != '"none"'


def state_of_life(state: State) -> str:
    """Return the device state in which the lifetime is measured.

    This is the state that the user requested, unless it is a new device. Otherwise it is a used device. A state that
    was chosen because it matches a recording is not used: it shows how fast the device was, not how long it had been
    used.
    """
    is_given = state.chosen == GIVEN and state.precondition != NEW
    return state.precondition if is_given else parse_text(USED)


def daily_bytes_of(state: State) -> float | None:
    """Return the bytes that a used device writes in a day, if the user requested its state; otherwise None."""
    amount = re.search(r",daily=([\d.]+)([KMGT])B", state.precondition) if state.chosen == GIVEN else None
    return None if amount is None else float(amount[1]) * 1024.0 ** (1 + "KMGT".index(amount[2]))


def parse_text(precondition: str) -> str:
    """Parse the text of a device state and return its complete form.

    >>> parse_text("used:1y")
    'used:365d,daily=2GB,filled=75,random=12,trim=yes'
    """
    return parse_precondition(precondition).text


@contextlib.contextmanager
def shared_images(images: str | None) -> Iterator[str]:
    """Provide the folder of preconditioned devices, which the runs share."""
    if images is not None:
        yield images
        return
    with tempfile.TemporaryDirectory(prefix="emmclab-images-") as folder:
        yield folder

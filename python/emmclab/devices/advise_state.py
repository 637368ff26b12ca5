"""What devices hold before the runs of an advice: the given state, or the one that a recording speaks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from pathlib import Path

from emmclab.devices.device import Device
from emmclab.devices.preconditioning import parse_precondition
from emmclab.devices.result import Result
from emmclab.devices.result_text import beside_text, state_text, trusted
from emmclab.devices.run_options import RunOptions
from emmclab.errors import EmmclabError
from emmclab.runtime.signed import signed

#: Have the state chosen.
AUTO = "auto"
#: Data on the device where nothing is known: on a new one, options on collection would change nothing.
USED = "used:1y"
NEW = "none"
#: A device that was overwritten until nothing is free; it takes longest to make.
STEADY = "steady"
#: The states that are tried, the simplest first: kinds of data, then its amount.
STATES = (NEW, "sequential:50", "sequential:90", "random:50", "random:90", USED)

#: Difference of the simulated from the recorded mean response up to which a state meets it, in percent.
MEETS_PCT = 10.0
#: Difference of two states up to which the simpler one is taken, in percent of the recorded response.
ALIKE_PCT = 1.0
#: A device that is this many times as slow or as fast in its nearest state is not the recorded one.
_OTHER = 2.0
#: The same of a new device that is faster: data on a device makes it slower, but not that much.
_OTHER_NEW = 10.0

#: How a state came about.
GIVEN, RECORDED, ASSUMED = "given", "recorded", "assumed"


@dataclass(frozen=True)
class TriedState:
    """A state that was held against the recording."""

    precondition: str
    #: None if the run ended early, was overloaded or not possible; `reason` says so.
    mean_response_ms: float | None
    error_pct: float | None
    reason: str = ""


@dataclass(frozen=True)
class State:
    """The state of the devices of an advice, and what the recording says of it."""

    precondition: str
    #: `given`; `recorded`: of those tried, it is the nearest to the recorded response; or `assumed`.
    chosen: str
    simulated_ms: float
    #: None if no completion is recorded.
    recorded_ms: float | None
    error_pct: float | None
    #: Why it is assumed; empty if it is not.
    reason: str = ""
    tried: tuple[TriedState, ...] = ()
    #: States that are as near to the recording and less simple.
    alike: tuple[str, ...] = ()

    @property
    def meets(self) -> bool | None:
        """Whether the mean response is the recorded one within `MEETS_PCT`; None if none is recorded."""
        return None if self.error_pct is None else abs(self.error_pct) <= MEETS_PCT

    @property
    def line(self) -> str:
        """The recorded beside the simulated response, and how the state was chosen."""
        where = state_text(self.precondition)
        if self.recorded_ms is None:
            return "" if self.chosen == GIVEN else f"assumed state: {where}; {self.reason}"
        beside = f"{beside_text(self.simulated_ms, self.recorded_ms, self.error_pct)}; state: {where}"
        if self.chosen == GIVEN:
            return f"{beside}, as given"
        if self.chosen == ASSUMED:
            return f"{beside}, assumed: {self.reason}"
        if not self.meets:
            return f"{beside}, the nearest of {len(self.tried)} tried"
        line = f"{beside}, which meets the recorded response best"
        return f"{line}; as near: {', '.join(self.alike)}" if self.alike else line

    @property
    def caution(self) -> str:
        """Say that no state meets the recording; empty if one does, or none was looked for."""
        if self.chosen != RECORDED or self.meets:
            return ""
        return (
            f"no state of the device meets the recorded mean response within {MEETS_PCT:.0f} %: the nearest "
            f"is {signed(self.error_pct or 0.0)} % from it, so the gains may be those of another device"
        )

    @property
    def tried_line(self) -> str:
        """The mean response of each state that was tried; empty if none was."""
        parts = [
            f"{one.precondition} {one.reason}"
            if one.mean_response_ms is None
            else f"{one.precondition} {one.mean_response_ms:,.2f}"
            for one in self.tried
        ]
        return f"mean response by state, ms: {', '.join(parts)}" if parts else ""

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON values, with the tolerance."""
        said = asdict(self) | {"tried": [asdict(one) for one in self.tried], "alike": list(self.alike)}
        return said | {"meets": self.meets, "tolerance_pct": MEETS_PCT}


def settle(
    run: Callable[[str | Path], Result],
    pool: Executor,
    replay: RunOptions,
    *,
    collects: bool,
) -> tuple[State, Result]:
    """Choose the state of the devices of an advice, and return it with the run in it.

    `run` simulates the device as it is in a state. A state that `replay` has is taken. Otherwise the measure
    is the difference of the simulated from the recorded mean response, and the state with the least one is
    taken; within `ALIKE_PCT` of it the simplest, in the order of `STATES`. `STEADY` is tried where each other
    one is too fast. Without recorded completions, and for a device that differs from the recorded one more
    than its state explains, the state is assumed: `USED`, or new where the device does not collect.
    """
    wanted = replay.get("precondition")
    if wanted not in (None, AUTO):
        base = pool.submit(run, wanted).result()
        return _state(base, GIVEN), base
    # This run ends before others open the traces: it reports a pipe, which cannot be read twice.
    new = pool.submit(run, NEW).result()
    if not collects:
        return _state(new, ASSUMED, "it does not collect"), new
    if reason := _unlike(new, replay):
        base = pool.submit(run, USED).result()
        return _state(base, ASSUMED, reason), base
    runs: dict[str, Result | str] = {NEW: new}
    runs |= _tried({one: pool.submit(run, one) for one in STATES[1:]})
    if all(_error(one) < -MEETS_PCT for one in _sound(runs).values()):
        runs |= _tried({STEADY: pool.submit(run, STEADY)})
    return _nearest(runs, lambda: pool.submit(run, USED).result())


def _nearest(runs: Mapping[str, Result | str], used: Callable[[], Result]) -> tuple[State, Result]:
    """Take the nearest state, or the assumed one where even that is too far."""
    sound = _sound(runs)
    tried = tuple(_described(name, one) for name, one in runs.items())
    least = min(abs(_error(one)) for one in sound.values())
    near = [name for name, one in sound.items() if abs(_error(one)) <= least + ALIKE_PCT]
    base = sound[near[0]]
    ratio = 1 + _error(base) / 100
    if not 1 / _OTHER <= ratio <= _OTHER:
        known = runs[USED]
        base = used() if isinstance(known, str) else known
        reason = f"no state tried is within {_OTHER:g} times the recorded response"
        return _state(base, ASSUMED, reason, tried), base
    return _state(base, RECORDED, "", tried, tuple(near[1:])), base


def _state(
    base: Result,
    chosen: str,
    reason: str = "",
    tried: Iterable[TriedState] = (),
    alike: tuple[str, ...] = (),
) -> State:
    beside = base.fields["recorded"]["response"]["all"]
    return State(
        precondition=str(base.fields["options"]["precondition"]),
        chosen=chosen,
        simulated_ms=base.fields["response"]["mean_response_ms"],
        recorded_ms=beside["recorded_ms"],
        error_pct=beside["error_pct"],
        reason=reason,
        tried=tuple(tried),
        alike=alike,
    )


def _unlike(new: Result, replay: RunOptions) -> str:
    """Say why the recording does not speak for a state of the device; empty if it may."""
    beside = new.fields["recorded"]["response"]["all"]
    if beside["error_pct"] is None:
        return "no response times are recorded"
    paced = replay.get("mode") == "back_to_back" or replay.get("rate", 1.0) != 1.0
    if paced or replay.get("layers"):
        return "the requests do not come as they were recorded"
    if not trusted(new):
        return "a new device does not serve the trace as it was recorded"
    ratio = 1 + beside["error_pct"] / 100
    if ratio > _OTHER:
        return f"a new device answers {ratio:.1f} times as slowly as the recorded one"
    if ratio * _OTHER_NEW < 1:
        return f"a new device answers {1 / ratio:.0f} times as fast as the recorded one"
    return ""


def _tried(runs: Mapping[str, Future[Result]]) -> dict[str, Result | str]:
    """Return the run in each state, or why it is not possible."""
    found: dict[str, Result | str] = {}
    for name, one in runs.items():
        try:
            found[name] = one.result()
        except EmmclabError as error:
            found[name] = f"is not possible: {error}"
    return found


def _sound(runs: Mapping[str, Result | str]) -> dict[str, Result]:
    return {name: one for name, one in runs.items() if not isinstance(one, str) and trusted(one)}


def _error(run: Result) -> float:
    """Return the error in percent of a run with recorded times, which `_unlike` has checked."""
    error = run.fields["recorded"]["response"]["all"]["error_pct"]
    if error is None:
        raise ValueError("no response times are recorded")
    return error


def _described(name: str, run: Result | str) -> TriedState:
    if isinstance(run, str):
        return TriedState(name, None, None, run)
    if not trusted(run):
        return TriedState(name, None, None, "ended early or was overloaded")
    return TriedState(name, run.fields["response"]["mean_response_ms"], _error(run))


def collects(device: Device) -> bool:
    """Return whether a device collects garbage.

    >>> collects(Device.preset("nexus5")), collects(Device.preset("ssdsim"))
    (True, False)
    """
    policy: str = next(row["value"] for row in device.explain() if row["key"] == "gc.policy")
    return policy != '"none"'


def state_of_life(state: State) -> str:
    """Return the state in which a lifetime is measured: the given one, but that of a used device for new.

    A state that was chosen by the recording says how fast the device was, not for how long it was used.
    """
    is_given = state.chosen == GIVEN and state.precondition != NEW
    return state.precondition if is_given else parse_text(USED)


def parse_text(precondition: str) -> str:
    """Return a state with all of its parts.

    >>> parse_text("used:1y")
    'used:365d,daily=2GB,filled=75,random=12,trim=yes'
    """
    found = parse_precondition(precondition)
    return precondition if isinstance(found, Path) else found.text

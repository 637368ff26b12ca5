"""The device state of an advice: the one that fits the recording, and the messages about it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import emmclab as api
from conftest import emmclab, emmclab_json
from emmclab.advice.device_state import ASSUMED, GIVEN, RECORDED, STATES, STEADY, USED, State, settle
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result

#: A device of 2 GB on which existing data makes writes slower.
PHONE = """
name = "phone"
[[geometry.block_groups]]
page_kb = 16
blocks = 540
pages_per_block = 256
read_us = 80
program_us = 700
erase_us = 3000
[capacity]
over_provisioning_pct = 5
[gc]
policy = "greedy"
"""


def _settled(recorded_ms: float | None, simulated_ms: dict[str, float], **replay: Any) -> State:
    """Choose a state if each state has the given mean response."""

    def run(precondition: str | Path) -> Result:
        mean = simulated_ms[str(precondition)]
        error = None if recorded_ms is None else 100 * (mean / recorded_ms - 1)
        return Result(
            {
                "options": {"precondition": str(precondition)},
                "run": {"stopped": None, "load": {"overloaded": False}},
                "response": {"mean_response_ms": mean},
                "recorded": {"response": {"all": {"recorded_ms": recorded_ms, "error_pct": error}}},
            }
        )

    with ThreadPoolExecutor(2) as pool:
        state, base = settle(run, pool, replay, collects=True)
    assert base["response.mean_response_ms"] == state.simulated_ms == simulated_ms[state.precondition]
    return state


#: The mean response in each state: existing data makes the device slower.
MEANS = dict(zip(STATES, (1.0, 1.0, 1.0, 2.0, 2.5, 3.0), strict=True))


@pytest.mark.parametrize(
    ("recorded_ms", "precondition", "meets"),
    [(1.0, "none", True), (2.02, "random:50", True), (2.55, "random:90", True), (2.8, USED, True)],
)
def test_the_state_that_meets_the_recorded_response_best_is_taken(
    recorded_ms: float, precondition: str, meets: bool
) -> None:
    state = _settled(recorded_ms, MEANS)
    assert (state.precondition, state.chosen, state.meets) == (precondition, RECORDED, meets)
    assert not state.caution
    assert f"recorded {recorded_ms:.2f} ms" in state.line and f"{state.simulated_ms:.2f} ms" in state.line
    assert [one.precondition for one in state.tried] == list(STATES)


def test_of_states_that_are_as_near_the_simplest_is_taken_and_the_others_are_named() -> None:
    state = _settled(1.0, MEANS | {"sequential:50": 0.999})
    assert (state.precondition, state.alike) == ("none", ("sequential:50", "sequential:90"))
    assert "sequential:90" in state.line


def test_a_recording_that_no_state_meets_is_said_to_be_so_with_the_nearest_state() -> None:
    state = _settled(1.4, MEANS)
    assert (state.precondition, state.chosen, state.meets) == ("none", RECORDED, False)
    assert "within 10 %" in state.caution and "-28.6 %" in state.caution


def test_a_device_that_is_overwritten_all_over_is_tried_where_all_others_are_too_fast() -> None:
    state = _settled(9.0, MEANS | {STEADY: 9.2})
    assert (state.precondition, state.meets) == (STEADY, True)


@pytest.mark.parametrize(("recorded_ms", "why"), [(0.4, "as slowly"), (50.0, "as fast"), (None, "recorded")])
def test_a_recording_of_another_device_says_nothing_of_the_state(recorded_ms: float | None, why: str) -> None:
    state = _settled(recorded_ms, {name: mean for name, mean in MEANS.items() if name in ("none", USED)})
    assert (state.precondition, state.chosen) == (USED, ASSUMED)
    assert why in state.reason and state.reason in state.line


def test_a_state_far_from_a_slow_recording_is_assumed() -> None:
    state = _settled(9.0, MEANS | {STEADY: 4.0})
    assert (state.precondition, state.chosen) == (USED, ASSUMED)
    assert len(state.tried) == len(STATES) + 1


@pytest.mark.parametrize("given", [{"mode": "back_to_back"}, {"rate": 2.0}])
def test_requests_at_another_pace_than_recorded_choose_no_state(given: dict[str, Any]) -> None:
    assert _settled(1.0, MEANS, **given).chosen == ASSUMED


def test_a_given_state_is_taken_and_the_recording_stands_beside_it() -> None:
    state = _settled(1.0, {"steady:1": 7.0}, precondition="steady:1")
    assert (state.precondition, state.chosen, state.meets) == ("steady:1", GIVEN, False)
    assert "recorded 1.00 ms (+600.0 %)" in state.line and not state.caution


@pytest.fixture
def phone(tmp_path: Path) -> tuple[object, ...]:
    """The device, in open loop: responses do not depend on the recorded completions."""
    file = tmp_path / "phone.toml"
    file.write_text(PHONE)
    return "--device", file, "--mode", "open"


def _recording(path: Path, state: str) -> float:
    """Write a trace with the responses of a device in a state; return their mean in ms."""
    arrivals = range(0, 20_000_000_000, 10_000_000)
    rows = [(at, 8 * (number * 7919 % 200_000)) for number, at in enumerate(arrivals)]
    head = "arrival_ns,op,sector,sectors"
    path.write_text("\n".join([head, *(f"{at},write,{sector},8" for at, sector in rows)]) + "\n")
    run = Device.from_toml(PHONE).simulate(api.read(path), precondition=state, mode="open")
    mean_ns = round(run["response.mean_response_ms"] * 1e6)
    head = "arrival_ns,complete_ns,op,sector,sectors"
    lines = [f"{at},{at + mean_ns},write,{sector},8" for at, sector in rows]
    path.write_text("\n".join([head, *lines]) + "\n")
    return mean_ns / 1e6


def test_the_state_of_the_recorded_device_is_found_again(phone: tuple[object, ...], tmp_path: Path) -> None:
    trace, page = tmp_path / "trace.csv", tmp_path / "advice.html"
    mean_ms = _recording(trace, "random:90")
    found = emmclab_json("advise", trace, *phone, "--html", page)
    state = found["state"]
    assert (state["precondition"], state["chosen"], state["meets"]) == ("random:90", RECORDED, True)
    assert state["recorded_ms"] == pytest.approx(mean_ms, abs=1e-5)
    assert found["device"]["options"]["precondition"] == "random:90"
    assert "random:90" in page.read_text()
    # The comparison of recorded and simulated responses is directly below the answer.
    warning, _, line = emmclab("advise", trace, *phone).stdout.splitlines()[:3]
    assert warning.startswith("warning: the trace does not record")
    assert f"recorded {mean_ms:.2f} ms" in line and "random:90" in line
    for words, precondition in ((("--new",), "none"), (("--precondition", "random:50"), "random:50")):
        given = emmclab_json("advise", trace, *phone, *words)
        assert (given["state"]["precondition"], given["state"]["chosen"]) == (precondition, GIVEN)
        assert "as given" in emmclab("advise", trace, *phone, *words).stdout.splitlines()[2]


def test_a_lifetime_is_that_of_a_used_device_whatever_state_the_recording_had(
    phone: tuple[object, ...], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    _recording(trace, "none")
    limit = ("--set", "geometry.block_groups.0.erase_limit=3000")
    found = emmclab_json("advise", trace, *phone, *limit, "--lifetime")
    assert found["state"]["precondition"] == "none" and found["state"]["chosen"] == RECORDED
    assert found["life"]["precondition"].startswith("used:365d")

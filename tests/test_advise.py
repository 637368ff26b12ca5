"""Advice: design options for a trace, the state of the device that fits it, and the study of options."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import annotated
import emmclab as api
from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok, need_library
from emmclab.advice.advise import ORDERS, advise, measurement_text, options
from emmclab.advice.device_state import ASSUMED, GIVEN, RECORDED, STATES, STEADY, USED, State, settle
from emmclab.errors import ConfigError
from emmclab.runtime.result_storage import Folder
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.studies import Serial, Study
from emmclab.studies.advise_deep import Deep, advise_deep, space_of, trial_options

#: The smallest bundled trace.
SOURCE = min(api.bundled(), key=lambda path: path.stat().st_size)


@pytest.fixture(scope="module")
def trace() -> api.Trace:
    return api.read(SOURCE)


def test_options_are_ranked_with_what_they_cost(trace: api.Trace) -> None:
    device = Device.preset("emmc51-tlc")
    advised = advise(device, [trace], precondition="none")
    base, options = advised.base, advised.options
    assert not advised.refused
    assert advised.life is None
    assert all(advice.life is None for advice in options), "no lifetime was requested"
    means = [advice.mean_response_ms for advice in options]
    assert means == sorted(means)
    by_name = {advice.option: advice for advice in options}
    assert by_name["write buffer"].ram_kb == 512
    assert by_name["SLC cache"].capacity_change_pct < 0
    assert by_name["static wear levelling"].capacity_change_pct == 0
    for advice in options:
        result = device.set(advice.settings).simulate(trace)
        assert result["response.mean_response_ms"] == advice.mean_response_ms, advice.option
    assert base["trace"] == trace.name
    for order in list(ORDERS)[1:3]:
        ranked = advise(device, [trace], by=order, precondition="none").options
        values = [advice.p99_response_ms if order == "p99" else advice.waf for advice in ranked]
        assert values == sorted(values)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Deep:
    need_library("optuna")
    place = Folder(tmp_path_factory.mktemp("deep"))
    return advise_deep("emmc51-tlc", [str(SOURCE)], place, Serial(), budget=6, settings={"cache.size_kb": 0})


def test_options_are_tried_together_and_alone_and_useless_ones_left_out(together: Deep, trace: api.Trace) -> None:
    device = Device.preset("emmc51-tlc").set({"cache.size_kb": 0})
    options_by_name = {option.name: option for option in options(device)}
    alone = {trial_options(trial)[0]: trial for trial in together.found.trials if len(trial_options(trial)) == 1}
    assert alone.keys() == options_by_name.keys(), "each option is also tried alone"
    ranked = advise(device, [trace], precondition="none").options
    assert {trial.option: trial.mean_response_ms for trial in ranked} == {
        name: trial.figures[together.metric] for name, trial in alone.items() if not trial.reason
    }
    best, single = together.best, together.single
    assert best is not None and single is not None
    assert best.figures[together.metric] <= single.figures[together.metric] <= ranked[0].mean_response_ms
    settings = {key: value for name in trial_options(best) for key, value in options_by_name[name].settings.items()}
    rerun = device.set(settings).simulate(trace)
    assert rerun["response.mean_response_ms"] == best.figures[together.metric]
    tried_values = [trial.values for trial in together.found.trials]
    for name in trial_options(best):
        # Without one of its options it is worse, or not better at the same cost.
        fewer = {key: "no" if value == name else value for key, value in best.values.items()}
        (other,) = {id(trial): trial for trial in together.found.trials if trial.values == fewer}.values() or [None]
        assert fewer in tried_values and other is not None and together._order(other) > together._order(best)


def test_options_that_share_a_setting_are_never_taken_together() -> None:
    space = space_of(Device.preset("emmc51-tlc"))
    (buffers,) = [range_ for range_ in space.ranges if "write buffer" in range_.choices]
    assert buffers.choices == ("no", "write buffer", "write buffer, 4 MB")
    assert buffers.settings("write buffer") == {"cache.size_kb": 512}
    keys = [set().union(*map(set, range_.means.values())) for range_ in space.ranges]
    assert all(not a & b for place, a in enumerate(keys) for b in keys[:place])


@pytest.mark.slow
def test_deep_advice_is_in_every_form_and_refused_before_the_work(tmp_path: Path) -> None:
    need_library("optuna")
    words = ("advise", SOURCE, "--device", "emmc51-tlc", "--new", "--deep", "--budget", 2)
    words = (*words, "--jobs", 1, "--results", tmp_path / "results")
    page = tmp_path / "advice.html"
    deep = emmclab_json(*words, "--html", page)["together"]
    assert deep["trials"] >= 1 + 9 and deep["front"][0]["options"]
    assert "mean_response_ms" in page.with_name("advice-deep.html").read_text()
    done = emmclab(*words)
    assert "Together: " in done.stdout and "the best single option" in done.stdout
    assert_refused(emmclab(*words, "--by", "lifetime"), "leave out --deep")


def test_an_option_that_a_device_cannot_have_is_named_with_the_reason(trace: api.Trace) -> None:
    advised = advise(Device.preset("ssdsim"), [trace], wrap_addresses=True)
    assert "packed writes" in advised.refused
    assert "queue" in advised.refused["packed writes"]
    assert {advice.option for advice in advised.options}.isdisjoint(advised.refused)


def test_an_option_that_a_device_has_already_says_so(trace: api.Trace) -> None:
    device = Device.preset("ufs31", capacity="8GB")
    advised = advise(device, [trace], wrap_addresses=True, precondition="none")
    assert advised.refused["SLC cache"] == f"{device.name} has a WriteBooster already"


def test_a_lifetime_is_that_of_a_device_in_use(trace: api.Trace) -> None:
    device = Device.preset("small-1gb").set({"geometry.block_groups.0.erase_limit": 3000})
    advised = advise(device, [trace], by="lifetime", wrap_addresses=True, precondition="none")
    life = advised.life
    assert life is not None
    assert life.waf > advised.base["write_amplification.waf"], "a full device collects, a new one does not"
    written, capacity = (advised.base["requests.bytes_written"], advised.base["configuration.capacity_bytes"])
    assert (life.passes - 1) * written < 0.01 * capacity
    assert life.passes * written >= 0.01 * capacity
    # Each block endures 3,000 erases, for writes of the host and of garbage collection.
    most = 3000 * 1.07 * capacity / 2**30
    assert most / life.waf * 0.8 < life.host_gb < most / life.waf * 1.2
    assert life.years is not None
    per_year = written / advised.base["run.simulated_s"] * 365.25 * 86400 / 2**30
    assert life.years == pytest.approx(life.host_gb / per_year)
    lives = [0 if option.life is None else option.life.host_gb for option in advised.options]
    assert lives == sorted(lives, reverse=True)
    assert lives[0] > 0


def test_the_years_of_a_used_device_are_those_of_its_own_daily_amount(trace: api.Trace) -> None:
    device = Device.preset("small-1gb").set({"geometry.block_groups.0.erase_limit": 3000})
    lives = [
        advise(device, [trace], by="lifetime", wrap_addresses=True, precondition=f"used:30d,daily={daily}").life
        for daily in ("500MB", "1GB")
    ]
    assert all(lives)
    slow, fast = (life for life in lives if life is not None)
    assert (slow.daily_gb, fast.daily_gb, fast.ends_first) == (500 / 1024, 1.0, "MLC")
    for life in (slow, fast):
        assert life.years == pytest.approx(life.host_gb / (life.daily_gb or 0) / 365.25)


def test_a_ranking_by_lifetime_shows_the_lifetime_of_each_option_beside_it() -> None:
    words = ("advise", SOURCE, "--device", "small-1gb", "--set", "geometry.block_groups.0.erase_limit=3000")
    words = (*words, "--wrap-addresses", "--new", "--by", "lifetime")
    advice = emmclab_json(*words)
    lines = emmclab(*words).stdout.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("Options by lifetime"))
    lives = [advice["life"], *(option["life"] for option in advice["options"])]
    # Two lines of headings and a rule precede the options.
    for line, life in zip(lines[first + 4 : first + 4 + len(lives)], lives, strict=True):
        assert f" {life['host_gb'] * 2**30 / 1e12:,.2f} " in line, line


def test_a_lifetime_is_measured_in_the_state_that_was_asked_for(trace: api.Trace) -> None:
    # A year of use would wear out blocks that endure 100 erases.
    device = Device.preset("small-1gb").set({"geometry.block_groups.0.erase_limit": 100})
    advised = advise(device, [trace], by="lifetime", wrap_addresses=True, precondition="steady:1")
    assert advised.life is not None and all(option.life for option in advised.options)
    assert advised.refused.keys().isdisjoint({"write buffer", "SLC cache"})
    assert "steady:1" in measurement_text(advised.life, advised.base)


def test_the_plan_counts_the_devices_that_are_preconditioned_once_each(trace: api.Trace) -> None:
    device = api.Device.preset("small-1gb").set({"geometry.block_groups.0.blocks": 64})
    planned: list[tuple[int, float]] = []
    advised = advise(
        device,
        [trace],
        precondition="random:50",
        wrap_addresses=True,
        planned=lambda devices, most: planned.append((devices, most)),
    )
    ((devices, most_bytes),) = planned
    # The queue, the read cache and pauses do not affect the writes of this preconditioning.
    unaffected = {"command queue", "read cache", "collection in pauses"}
    assert {advice.option for advice in advised.options} >= unaffected
    assert devices == 1 + len({advice.option for advice in advised.options} - unaffected)
    assert 0.4 * devices < most_bytes / device.capacity_bytes < 0.6 * devices


def test_a_device_without_collection_has_no_lifetime(trace: api.Trace) -> None:
    advised = advise(Device.preset("ssdsim"), [trace], lifetime=True, wrap_addresses=True)
    assert advised.life is None
    assert all(option.life is None for option in advised.options)


def test_what_a_device_has_already_is_no_option() -> None:
    names = [option.name for option in options(Device.preset("nexus5").set({"controller.queue_depth": 32}))]
    assert "command queue" not in names
    assert "parallel planes" not in names, "it has one plane"


def test_an_unknown_order_is_refused(trace: api.Trace) -> None:
    with pytest.raises(ConfigError, match="cannot be ranked"):
        advise(Device.preset("nexus5"), [trace], by="beauty")


def test_the_study_of_the_implications_has_every_cell_that_its_claims_need() -> None:
    cells = Study.named("implications").cells()
    grids = {cell.grid for cell in cells}
    assert {"new", "aged", "idle-gc", "ram-write", "ram-read", "wear", "slc-new", "slc-aged"} <= grids
    options = [json.loads(cell.options) for cell in cells if cell.grid.startswith("card-")]
    assert len({option["second"] for option in options}) == 2
    assert len({option["layer_settings"]["pair.routing"] for option in options}) == 3


def test_modes_of_the_journal_s_layer_are_ranked_by_the_time_of_the_run() -> None:
    device, noted = Device.preset("emmc51-cache"), annotated.trace(annotated.rows(60))
    advised = advise(device, [noted], precondition="none", mode="back_to_back")
    journal = advised.journal
    assert not journal.reason and not journal.refused
    assert {mode.mode for mode in journal.modes} == {"ordered_fua", "delta", "packed", "aware"}
    assert [mode.run_s for mode in journal.modes] == sorted(mode.run_s for mode in journal.modes)
    for mode in journal.modes:
        run = device.simulate(noted, layers=[f"journal:{mode.mode}"], mode="back_to_back")
        assert (mode.run_s, mode.flushes) == (run["run.simulated_s"], run["cache.flushes"]), mode.mode
        before, after = (result["flash.page_programs.total"] for result in (advised.base, run))
        assert mode.page_programs == after
        assert mode.page_programs_change_pct == pytest.approx(100 * (after / before - 1))
    assert journal.modes[0].mode in journal.headline


def test_without_commits_in_the_trace_modes_are_not_judged_with_a_reason(trace: api.Trace, tmp_path: Path) -> None:
    device = Device.preset("emmc51-cache")
    assert "no block notes" in advise(device, [trace], precondition="none").journal.headline
    data = [row for row in annotated.rows(20) if row["role"] == ["data"]]
    journal = advise(device, [annotated.trace(data)], precondition="none").journal
    assert journal.reason == "the trace has no commit of a journal"
    plain = annotated.write(tmp_path / "data.parquet", data)
    done = emmclab_ok("advise", plain, "--device", "emmc51-cache", "--new")
    assert "Layer below the journal: the trace has no commit" in done.stdout


def test_the_modes_stand_in_text_page_and_json(tmp_path: Path) -> None:
    noted, page = annotated.write(tmp_path / "commits.parquet", annotated.rows(30)), tmp_path / "page.html"
    arguments = ("advise", noted, "--device", "emmc51-cache", "--new")
    modes = emmclab_json(*arguments, "--html", page)["journal"]
    assert len(modes["modes"]) == 4 and modes["reason"] == ""
    done = emmclab_ok(*arguments)
    for text in (done.stdout, page.read_text()):
        assert "Layer below the journal: journal:" in text and "ordered_fua" in text


#: A device of 2 GB whose writes are slower if it contains data.
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
    """Choose a state, with these mean response times in each state."""

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


#: The mean response time in each state: data on the device makes it slower.
MEANS = dict(zip(STATES, (1.0, 1.0, 1.0, 2.0, 2.5, 3.0), strict=True))


@pytest.mark.parametrize(
    ("recorded_ms", "precondition", "meets"),
    [(1.0, "none", True), (2.02, "random:50", True), (2.55, "random:90", True), (2.8, USED, True)],
)
def test_the_state_nearest_to_the_recorded_time_is_taken(recorded_ms: float, precondition: str, meets: bool) -> None:
    state = _settled(recorded_ms, MEANS)
    assert (state.precondition, state.chosen, state.meets) == (precondition, RECORDED, meets)
    assert not state.caution
    assert f"recorded {recorded_ms:.2f} ms" in state.line and f"{state.simulated_ms:.2f} ms" in state.line
    assert [candidate.precondition for candidate in state.tried] == list(STATES)


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


@pytest.mark.parametrize("replay_options", [{"mode": "back_to_back"}, {"rate": 2.0}])
def test_requests_at_another_pace_than_recorded_choose_no_state(replay_options: dict[str, Any]) -> None:
    assert _settled(1.0, MEANS, **replay_options).chosen == ASSUMED


def test_a_given_state_is_taken_and_the_recording_stands_beside_it() -> None:
    state = _settled(1.0, {"steady:1": 7.0}, precondition="steady:1")
    assert (state.precondition, state.chosen, state.meets) == ("steady:1", GIVEN, False)
    assert "recorded 1.00 ms (+600.0 %)" in state.line and not state.caution


@pytest.fixture
def phone(tmp_path: Path) -> tuple[object, ...]:
    """The device, in open loop, so that response times do not depend on the recorded completions."""
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
    advice = emmclab_json("advise", trace, *phone, "--html", page)
    state = advice["state"]
    assert (state["precondition"], state["chosen"], state["meets"]) == ("random:90", RECORDED, True)
    assert state["recorded_ms"] == pytest.approx(mean_ms, abs=1e-5)
    assert advice["device"]["options"]["precondition"] == "random:90"
    assert "random:90" in page.read_text()
    # The comparison of recorded and simulated responses is directly below the answer.
    warning, _, line = emmclab("advise", trace, *phone).stdout.splitlines()[:3]
    assert warning.startswith("warning: the trace does not record")
    assert f"recorded {mean_ms:.2f} ms" in line and "random:90" in line
    for words, precondition in ((("--new",), "none"), (("--precondition", "random:50"), "random:50")):
        assumed = emmclab_json("advise", trace, *phone, *words)
        assert (assumed["state"]["precondition"], assumed["state"]["chosen"]) == (precondition, GIVEN)
        assert "as given" in emmclab("advise", trace, *phone, *words).stdout.splitlines()[2]


def test_a_lifetime_is_of_a_used_device_whatever_the_recorded_state(phone: tuple[object, ...], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    _recording(trace, "none")
    limit = ("--set", "geometry.block_groups.0.erase_limit=3000")
    advice = emmclab_json("advise", trace, *phone, *limit, "--lifetime")
    assert advice["state"]["precondition"] == "none" and advice["state"]["chosen"] == RECORDED
    assert advice["life"]["precondition"].startswith("used:365d")

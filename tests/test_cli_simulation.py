"""Simulated devices: fields, determinism, aging and rejected options of commands, and victim policies in Python."""

import hashlib
import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import duckdb
import pytest

import emmclab as api
from conftest import PATIENCE_S, ROOT, assert_refused, emmclab, emmclab_json, emmclab_ok, environment
from emmclab import VictimPolicy, VictimView
from emmclab.simulation.result_fields import result_fields

#: Keys that other programs search at any depth of the JSON, so that each must be unique.
HEADLINES = ["mean_response_ms", "mean_service_ms", "no_wait_pct", "space_utilisation", "page_operations_per_s"]


#: The option is needed because the generated traces extend beyond the end of the smallest device.
SMALL = ("--device", "small-1gb", "--wrap-addresses")


def _still(result: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that do not depend on this computer and its files."""
    return {name: value for name, value in result.items() if name not in ("computing", "provenance")}


def _keys(value: object) -> list[str]:
    """Return all keys at any depth."""
    if isinstance(value, dict):
        return [*value, *(key for part in value.values() for key in _keys(part))]
    return [key for part in value for key in _keys(part)] if isinstance(value, list) else []


def _require(fields: Any, path: str) -> None:
    """Fail if JSON has no such field; a group may be null."""
    for name in path.split("."):
        fields = fields and fields[name]


def test_simulate_gives_every_described_field_with_the_ledger(trace: Path) -> None:
    settings = ("--set", "cache.size_kb=512", "--set", "host.merge_max_kb=64", "--set", "controller.queue_depth=1")
    result = emmclab_json("simulate", trace, "--device", "iiswc15-hps", *settings)
    not_here = {"space.gain_ratio", "layers", "second_device", "first_writes", "setting_changes"}
    not_here |= {"percentiles", "response_distribution", "over_time", "power.sleep_stages"}
    described = {field.path for field in result_fields()} - not_here
    described = {path for path in described if not path.startswith(("ufs.", "durable.", "fio."))}
    for path in described:
        _require(result, path)
    groups = {name: group for name, group in result.items() if name not in ("ledger", "options", "provenance")}
    parts = {
        f"{name}.{part}"
        for name, group in groups.items()
        if isinstance(group, dict) and name not in ("response", "service")
        for part in group
    }
    undescribed = {part for part in parts if not any(f"{path}.".startswith(f"{part}.") for path in described)}
    assert undescribed == set() and set(result) == {path.partition(".")[0] for path in described}
    assert result["requests"]["total"] == result["ledger"]["kept"] == 400
    assert result["configuration"]["parallelism"] == "none" and result["run"]["mode"] == "closed"


def test_a_ufs_gives_what_its_link_queues_and_hibernation_cost(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = emmclab_json("simulate", trace, "--device", "ufs31", "--html", page)
    for path in (field.path for field in result_fields() if field.path.startswith("ufs.")):
        _require(result, path)
    ufs = result["ufs"]
    assert ufs["link_mb_per_s"] == pytest.approx(2332.16)
    assert ufs["to_host"]["bytes"] == result["requests"]["bytes_read"]
    assert ufs["to_device"]["bytes"] == result["requests"]["bytes_written"]
    assert ufs["tags"] == 32 >= ufs["most_in_flight"] >= 1
    assert ufs["hibernate_exits"] == result["power"]["wake_ups"]
    stdout = emmclab("simulate", trace, "--device", "ufs31").stdout
    for words in ("Link of 2 lanes of HS-G4", "Mean wait for a tag", "Exits from hibernation", "WriteBooster, size"):
        assert words in stdout and words in page.read_text(encoding="utf-8")


def test_stages_of_sleep_are_those_of_an_independent_model(tmp_path: Path) -> None:
    after_us, exit_us, mw = (300, 5_000, 40_000), (70, 600, 11_000), (20, 5, 0)
    stages = (f"{{after_us={a}, wake_us={e}, sleep_mw={p}}}" for a, e, p in zip(after_us, exit_us, mw, strict=True))
    device = api.Device.preset("small-1gb").set({"power.sleep_mw": 2, "power.stages": f"[{', '.join(stages)}]"})

    def simulate(arrivals_us: list[int]) -> api.Result:
        path = tmp_path / "reads.csv"
        rows = (f"{1000 * at},{number * 8},8,read\n" for number, at in enumerate(arrivals_us))
        path.write_text("arrival_ns,sector,sectors,op\n" + "".join(rows))
        return device.simulate(api.read(path), mode="open")

    service_us = simulate([0]).response.mean_response_ms * 1e3
    # Idle times around the begins of the stages. The arrival is a whole microsecond, so each is up to one longer.
    arrival, asleep_us, wakes, responses_us = 0, [0.0] * 3, [0] * 3, [service_us]
    arrivals, end = [0], service_us
    for idle in [1, 290, 301, 2_000, 4_990, 5_001, 30_000, 39_990, 40_001, 60_000, 500_000] * 3:
        arrival = int(end + idle) + 1
        slept = [
            max(0.0, min(arrival - end, until) - begin)
            for begin, until in zip(after_us, (*after_us[1:], 1e9), strict=True)
        ]
        asleep_us = [sum(pair) for pair in zip(asleep_us, slept, strict=True)]
        left = max((stage for stage in range(3) if slept[stage]), default=None)
        wakes = [count + (stage == left) for stage, count in enumerate(wakes)]
        responses_us.append(service_us + (0 if left is None else exit_us[left]))
        arrivals.append(arrival)
        end = arrival + responses_us[-1]
    result = simulate(arrivals)
    assert result.response.mean_response_ms == pytest.approx(sum(responses_us) / len(responses_us) / 1e3)
    rows = result.power.sleep_stages
    assert [row.wake_ups for row in rows] == wakes and [row.after_us for row in rows] == [*after_us]
    assert [row.asleep_s for row in rows] == pytest.approx([us / 1e6 for us in asleep_us])
    assert [row.waking_s for row in rows] == pytest.approx([n * us / 1e6 for n, us in zip(wakes, exit_us, strict=True)])
    assert result.power.wake_ups == sum(wakes) and result.power.asleep_s == pytest.approx(sum(asleep_us) / 1e6)
    energy_mj = sum(us / 1e6 * (power or 2) for us, power in zip(asleep_us, mw, strict=True))
    assert result.energy.asleep_mj == pytest.approx(energy_mj)


def test_blocks_of_16_kb_widen_the_requests_of_a_trace(trace: Path) -> None:
    small, large = (
        emmclab_json("simulate", trace, "--device", "ufs31", "--set", f"host.block_kb={kb}") for kb in (4, 16)
    )
    assert large["ufs"]["to_device"]["bytes"] > small["ufs"]["to_device"]["bytes"]
    assert large["requests"]["total"] == small["requests"]["total"] == 400


def test_each_headline_of_a_result_stands_in_it_once(trace: Path) -> None:
    keys = _keys(emmclab_json("simulate", trace, "--device", "iiswc15-hps"))
    assert [keys.count(name) for name in HEADLINES] == [1] * len(HEADLINES)


def _programs_and_utilisation(result: dict[str, Any]) -> tuple[int, float]:
    return result["flash"]["page_programs"]["total"], round(result["space"]["space_utilisation"], 4)


def test_a_20_kb_write_takes_8_8_and_4_kb_pages_of_a_hybrid_device(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("0\t\t40\t\t20480\t\t5\t\t1.0\t\t1.1\t\t1.2\t\t1.3\n")
    hybrid, pure = emmclab_json("compare", path, "--devices", "iiswc15-hps,iiswc15-8ps")
    assert _programs_and_utilisation(hybrid) == (3, 1.0)
    assert _programs_and_utilisation(pure) == (3, 0.8333)


def test_passes_repeat_the_trace_and_the_checker_agrees(trace: Path) -> None:
    result = emmclab_json("simulate", trace, *SMALL, "--passes", "3", "--check")
    assert result["requests"]["total"] == 3 * 400


def test_a_run_that_served_nothing_has_no_response_times(tiny_device: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("arrival_ns,sector,sectors,op\n0,0,8,write\n")
    done = emmclab_ok("simulate", path, "--device", tiny_device, "--precondition", "sequential:100", status=3)
    assert "no request was served" in done.stdout
    stdout = [line.split() for line in done.stdout.splitlines() if line.startswith("Mean response")]
    assert all(words[-2:] == ["–", "ms"] for words in stdout) and len(stdout) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--passes", "4294967296"], "`passes` cannot be 4294967296"),
        (["--seed", "18446744073709551616"], "give a number of at most 18446744073709551615"),
        (["--reorder-window", "9" * 30], f"--reorder-window cannot be {'9' * 30}"),
    ],
)
def test_a_wrong_option_is_named_with_a_hint_and_exit_2(trace: Path, arguments: list[str], words: str) -> None:
    assert_refused(emmclab("simulate", trace, *arguments), words)


def test_compare_states_the_gain_by_both_definitions(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("0\t\t40\t\t20480\t\t5\t\t1.0\t\t1.1\t\t1.2\t\t1.3\n")
    words = emmclab("compare", path).stdout
    assert "iiswc15-hps over iiswc15-8ps: +20.00 % as a ratio, +16.67 points as a difference" in words
    pure, hybrid = emmclab_json("compare", path, "--devices", "iiswc15-8ps,iiswc15-hps")
    assert (pure["space"]["gain_ratio"], round(hybrid["space"]["gain_ratio"], 9)) == (0, 0.2)


def test_devices_are_listed_and_explained() -> None:
    names = [device["name"] for device in emmclab_json("devices")]
    assert {"iiswc15-4ps", "iiswc15-8ps", "iiswc15-hps", "nexus5", "ssdsim", "small-1gb"} <= set(names)
    for name in names:
        assert emmclab("explain", name).returncode == 0


def test_a_checked_device_has_every_published_figure_between_its_bounds() -> None:
    rows = emmclab_json("devices", "--check", "ridata-c2")["fitted_to"]
    assert [(row["unit"], row["published"]) for row in rows] == [("MB/s", 7.9), ("MB/s", 0.02), ("1/s", 5)]
    assert all(row["least"] <= row["here"] <= row["most"] for row in rows)
    words = emmclab("devices", "--check", "ridata-c2").stdout
    assert words.startswith("ridata-c2: 3 of 3 figures are within their bounds\n")
    assert "7.11 – 8.69" in words and "0.015 – 0.025" in words and "4.50 – 5.50" in words


def test_a_checked_device_names_the_figures_beyond_their_bounds_first() -> None:
    rows = emmclab_json("devices", "--check", "emmc50-cache")["fitted_to"]
    outside = [row for row in rows if not row["least"] <= row["here"] <= row["most"]]
    first = emmclab("devices", "--check", "emmc50-cache").stdout.splitlines()[0]
    assert f"{len(rows) - len(outside)} of {len(rows)} figures are within" in first
    assert all(f"{row['figure']} ({row['deviation_pct']:+.1f} %)" in first for row in outside)


def test_a_device_without_published_figures_cannot_be_checked() -> None:
    assert_refused(
        emmclab("devices", "--check", "nexusone"),
        "`nexusone` was not fitted to published figures",
        "hint: choose one of the devices with published figures: adata-c6",
    )


def test_python_gives_what_the_command_line_gives(trace: Path) -> None:
    device = api.Device.preset("iiswc15-hps").set({"timing.parallelism": "both"})
    result = device.simulate(api.read(trace))
    output = emmclab_json("simulate", trace, "--device", "iiswc15-hps", "--set", "timing.parallelism=both")
    assert json.loads(json.dumps(_still(result.deterministic()))) == _still(output)


def test_rows_of_requests_tell_who_sent_them_and_what_the_run_was_made_of(tmp_path: Path) -> None:
    path = api.bundled()[0]
    events = tmp_path / "rows.parquet"
    settings = ("--set", "timing.parallelism=none", "--seed", "3", "--wrap-addresses")
    result = emmclab_json("simulate", path, "--device", "nexus5", *settings, "--events", events)
    sent = [(row["pid"], row["process"], row["device"]) for row in api.read(path).rows(10**6)]
    rows = duckdb.sql(f"select pid, process, device from '{events}'").fetchall()
    assert sorted(rows, key=str) == sorted(sent, key=str) and any(process for _, process, _ in rows)
    assert api.read(events).rows(1)[0]["process"] in {process for _, process, _ in sent}
    [(text,)] = duckdb.sql(
        f"select decode(value) from parquet_kv_metadata('{events}') where decode(key) = 'emmclab.run'"
    ).fetchall()
    about = json.loads(text)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    made_of = {
        "version": api.__version__,
        "inputs": [{"name": path.stem, "path": str(path), "sha256": digest, "reading": {}}],
        "aged_by": [],
        "settings": {"nexus5": {"timing.parallelism": '"none"'}},
    }
    assert about["provenance"] == result["provenance"]
    (device,) = result["provenance"].pop("devices")
    assert device["name"] == "nexus5" and device["settings"]["timing"]["parallelism"] == "none"
    command = result["provenance"].pop("command")
    assert result["provenance"] == made_of and command.startswith("emmclab simulate ")
    assert about["device"] == "nexus5" and about["options"]["seed"] == 3
    plain = emmclab_json("simulate", path, "--device", "nexus5", "--wrap-addresses")["provenance"]
    assert plain["settings"] == {"nexus5": {}}


def test_blocking_collection_of_large_blocks_delays_a_write_by_seconds_incremental_does_not(tmp_path: Path) -> None:
    """The values are those of docs/concepts/device.md for emmc51-tlc."""
    messages = tmp_path / "messages.parquet"
    assert emmclab("synth", "Messaging", messages, "--seed", 1).returncode == 0
    full = ("--capacity", "1GB", "--precondition", "steady:1", "--wrap-addresses")
    blocking, incremental = (
        emmclab_json("simulate", messages, "--device", "emmc51-tlc", *full, "--set", f"gc.mode={mode}")["response"]
        for mode in ("blocking", "incremental")
    )
    assert blocking["max_ms"] > 1_000 and incremental["max_ms"] < 100


#: Two planes of 40 blocks, so that collection runs all the time.
SETTINGS = {
    "geometry.channels": 1,
    "geometry.planes_per_die": 2,
    "geometry.block_groups.0.blocks": 40,
    "geometry.block_groups.0.pages_per_block": 64,
}


def _device(**more: Any) -> api.Device:
    settings = SETTINGS | {key.replace("__", "."): value for key, value in more.items()}
    return api.Device.preset("small-1gb").set(settings)


def _run(device: api.Device, trace: Path, victim: VictimPolicy | None = None) -> dict[str, Any]:
    result = device.simulate(api.read(trace), victim=victim, precondition="steady:2", passes=5, wrap_addresses=True)
    fields = result.deterministic()
    assert fields["gc"]["blocks"] > 100
    return {name: group for name, group in fields.items() if name != "options"}


def oldest(view: VictimView) -> int | None:
    """Return the block that has been full for the longest time."""
    return next(iter(view.full_blocks), None)


def fewest(view: VictimView) -> int | None:
    """Return the block with the fewest valid units; if several have the fewest, the oldest of them."""
    return min(view.full_blocks, key=view.valid, default=None)


def test_fifo_in_python_is_fifo(trace: Path) -> None:
    device = _device(gc__policy="fifo")
    assert _run(device, trace, oldest) == _run(device, trace)


def test_greedy_in_python_is_greedy_with_the_oldest_among_equals(trace: Path) -> None:
    # Among blocks with equally many valid units, `greedy` selects the one that lost a unit last; a window over all
    # blocks selects the oldest.
    device = _device(gc__policy="windowed_greedy", gc__window=1000)
    assert _run(device, trace, fewest) == _run(device, trace)


def test_the_device_is_aged_by_the_policy_of_its_settings(trace: Path) -> None:
    decisions = []

    def watch(view: VictimView) -> int | None:
        decisions.append(view.decision)
        return oldest(view)

    by_age = _run(_device(gc__policy="greedy"), trace, watch)
    assert decisions[0] > 0
    by_content = _run(_device(gc__policy="greedy"), trace, fewest)
    assert by_age["write_amplification"]["waf"] > by_content["write_amplification"]["waf"]


def test_the_view_shows_what_the_policies_of_the_core_see(trace: Path) -> None:
    decisions = []

    def watch(view: VictimView) -> int | None:
        blocks = view.full_blocks
        ages = [view.age(block) for block in blocks]
        assert ages == sorted(ages, reverse=True) and len(set(blocks)) == len(blocks)
        assert all(0 <= view.valid(block) <= view.units_per_block for block in blocks)
        assert all(view.erases(block) <= view.most_erases for block in blocks)
        with pytest.raises(ValueError, match="not a full block"):
            view.valid(1 << 20)
        with pytest.raises(AttributeError):
            view.decision = 1  # type: ignore[misc]
        decisions.append(view.decision)
        return fewest(view)

    _run(_device(), trace, watch)
    assert decisions == list(range(decisions[0], decisions[0] + len(decisions)))


def test_an_exception_of_the_policy_ends_the_run(trace: Path) -> None:
    calls = []

    def broken(view: VictimView) -> int | None:
        calls.append(view)
        raise ZeroDivisionError("of the policy")

    with pytest.raises(ZeroDivisionError, match="of the policy"):
        _run(_device(), trace, broken)
    assert len(calls) == 1


@pytest.mark.parametrize("answer", [1 << 20, -1, 1 << 40, "3", 1.5])
def test_an_answer_that_is_no_full_block_ends_the_run(trace: Path, answer: Any) -> None:
    with pytest.raises(api.ConfigError, match="not a full block of its view") as caught:
        _run(_device(), trace, lambda _: answer)
    assert "view.full_blocks" in str(caught.value.hint)


def test_a_policy_that_finds_nothing_lets_the_device_fill_up(trace: Path) -> None:
    result = _device().simulate(
        api.read(trace), victim=lambda _: None, precondition="steady:1", passes=50, wrap_addresses=True
    )
    assert "full" in result["run"]["stopped"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"gc.policy": "none"}, "gc.policy is none"),
        ({"mapping.scheme": "bast", "capacity.over_provisioning_pct": 60}, "maps blocks"),
    ],
)
def test_devices_without_victims_refuse_a_policy(trace: Path, settings: dict[str, str | float], reason: str) -> None:
    with pytest.raises(api.ConfigError, match=reason):
        _device().set(settings).simulate(api.read(trace), victim=fewest, wrap_addresses=True)


def test_the_example_of_the_page_runs(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "concepts" / "device.md").read_text().split("## Try a victim policy")[1]
    lines = [line for line in page.split("\n## ")[0].splitlines() if line.startswith("    ") or not line]
    monkeypatch.chdir(trace.parent)
    exec(textwrap.dedent("\n".join(lines)).replace("trace.txt", trace.name), {})
    amplification, erases = capsys.readouterr().out.split()
    assert float(amplification) > 1 and int(erases) > 0


def test_an_interrupt_ends_a_run_inside_the_policy(trace: Path) -> None:
    script = f"""
        import emmclab, sys
        def forever(view):
            print("asked", flush=True)
            while True:
                pass
        emmclab.Device.preset("small-1gb").set({SETTINGS!r}).simulate(
            emmclab.read({str(trace)!r}), victim=forever, precondition="steady:1", wrap_addresses=True)
    """
    running = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "asked\n"
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode != 0 and errors.rstrip().endswith("KeyboardInterrupt")

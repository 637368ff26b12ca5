"""Victim policies written in Python."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import emmclab
from conftest import PATIENCE_S, ROOT, environment
from emmclab import VictimPolicy, VictimView

#: Two planes of 40 blocks, so that collection runs all the time.
SETTINGS = {
    "geometry.channels": 1,
    "geometry.planes_per_die": 2,
    "geometry.block_groups.0.blocks": 40,
    "geometry.block_groups.0.pages_per_block": 64,
}


def _device(**more: Any) -> emmclab.Device:
    settings = SETTINGS | {key.replace("__", "."): value for key, value in more.items()}
    return emmclab.Device.preset("small-1gb").set(settings)


def _run(device: emmclab.Device, trace: Path, victim: VictimPolicy | None = None) -> dict[str, Any]:
    result = device.simulate(emmclab.read(trace), victim=victim, precondition="steady:2", passes=5, wrap_addresses=True)
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
    with pytest.raises(emmclab.ConfigError, match="not a full block of its view") as caught:
        _run(_device(), trace, lambda _: answer)
    assert "view.full_blocks" in str(caught.value.hint)


def test_a_policy_that_finds_nothing_lets_the_device_fill_up(trace: Path) -> None:
    result = _device().simulate(
        emmclab.read(trace), victim=lambda _: None, precondition="steady:1", passes=50, wrap_addresses=True
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
    with pytest.raises(emmclab.ConfigError, match=reason):
        _device().set(settings).simulate(emmclab.read(trace), victim=fewest, wrap_addresses=True)


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

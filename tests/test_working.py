"""Long work that reports no progress gives signs of life, and says what it does and how much it writes."""

from __future__ import annotations

import threading
import time

import pytest

from emmclab.cli import working
from emmclab.cli.working import Preparing, Working
from emmclab.devices.device import Device


def test_silent_work_prints_how_long_it_has_taken_until_it_reports_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(working, "_LINE_S", 0.01)
    with Working("precondition small-1gb") as one:
        said = ""
        while "so far" not in said:
            time.sleep(0.01)
            said += capsys.readouterr().err
        one.stop()
        capsys.readouterr()
        time.sleep(0.05)
    assert said.startswith("precondition small-1gb: ") and capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", ["a trace", "tasks", "a study"])
def test_no_long_time_passes_in_silence_whatever_a_meter_is_told(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace whose requests are left out, one long task, one long cell: none of them reports anything."""
    from emmclab.cli.meter import Counter, Meter
    from emmclab.cli.study_meter import StudyMeter

    monkeypatch.setattr(working, "_LINE_S", 0.05)
    meters = {"a trace": Meter("read"), "tasks": Counter("read", "tasks"), "a study": StudyMeter("read")}
    with meters[kind] as meter:
        if isinstance(meter, Meter):
            meter(30, 100, 7_000)
        said = ""
        begun = time.monotonic()
        while said.count("so far") < 3:
            time.sleep(0.01)
            said += capsys.readouterr().err
            assert time.monotonic() - begun < 60
    assert said.startswith("read: ") and ("7,000 requests" in said) == (kind == "a trace")
    time.sleep(0.1)
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_work_without_preconditioning_has_no_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(working, "_LINE_S", 0.01)
    threads = threading.active_count()
    with Preparing(Device.preset("small-1gb"), "none"):
        assert threading.active_count() == threads
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("what", "images", "most"),
    [("random:50", None, "512 MB"), ("steady", "kept", "5 GB"), ("used:1y,filled=50", None, "8.5 GB")],
)
def test_the_preparation_of_a_device_names_what_it_writes_at_most_how_far_it_is_and_how_to_keep_it(
    what: str,
    images: str | None,
    most: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(working, "_LINE_S", 0.01)
    written = iter(range(0, 1 << 40, 1 << 20))
    monkeypatch.setattr(working, "preconditioned_bytes", lambda: next(written))
    with Preparing(Device.preset("small-1gb"), what, images):
        said = ""
        while "left" not in said:
            time.sleep(0.01)
            said += capsys.readouterr().err
    line = next(line for line in said.splitlines() if "left" in line)
    assert f"writes at most {most}" in line and "MB written to precondition, at most" in line
    assert ("--images DIR" in line) == (images is None)


def test_options_that_are_tried_are_counted_as_simulations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from emmclab.cli import meter
    from emmclab.cli.meter import Counter

    monkeypatch.setattr(meter, "_SILENCE_S", 0.0)
    monkeypatch.setattr(meter, "_LINE_S", 0.0)
    Counter("advise on nexus5", "simulations of options")(2, 5, 0)
    assert "advise on nexus5: 2 of 5 simulations of options" in capsys.readouterr().err


def test_the_time_left_is_estimated_only_after_several_tasks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from emmclab.cli import meter
    from emmclab.cli.meter import Counter

    monkeypatch.setattr(meter, "_SILENCE_S", 0.0)
    monkeypatch.setattr(meter, "_LINE_S", 0.0)
    counter = Counter("advise on nexus5", "simulations of options")
    # The first task may make a device ready that the others share.
    counter(1, 9, 0)
    assert "left" not in capsys.readouterr().err
    counter(3, 9, 0)
    assert ", about " in capsys.readouterr().err

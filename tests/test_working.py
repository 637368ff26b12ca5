"""Long work that reports no progress gives signs of life, and says what it does and how much it writes."""

from __future__ import annotations

import threading
import time

import pytest

from emmclab.cli import working
from emmclab.cli.working import Working, preparation
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


def test_work_without_preconditioning_has_no_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert preparation(Device.preset("small-1gb"), "none") == ""
    monkeypatch.setattr(working, "_LINE_S", 0.01)
    threads = threading.active_count()
    with Working(""):
        assert threading.active_count() == threads
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_the_preparation_of_a_device_names_what_it_writes_at_most_and_how_to_keep_it() -> None:
    device = Device.preset("small-1gb")
    assert "writes at most 512 MB; --images DIR" in preparation(device, "random:50")
    assert "--images" not in preparation(device, "random:50", images="kept")
    assert "writes at most 5 GB" in preparation(device, "steady")


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

"""Long work without progress reports prints regularly what it does, and at most a limited amount."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import threading
import time

import pytest

from emmclab.cli import progress
from emmclab.cli.progress import Counter, Meter, Preparing, StudyMeter, Working
from emmclab.simulation.device import Device


def test_silent_work_prints_its_duration(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_LINE_S", 0.01)
    with Working("precondition small-1gb") as work:
        text = ""
        while "so far" not in text:
            time.sleep(0.01)
            text += capsys.readouterr().err
        work.stop()
        capsys.readouterr()
        time.sleep(0.05)
    assert text.startswith("precondition small-1gb: ") and capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", ["a trace", "tasks", "a study"])
def test_no_long_time_passes_in_silence_whatever_a_meter_is_told(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace whose requests are all left out, a long task and a long cell report no progress."""
    monkeypatch.setattr(progress, "_LINE_S", 0.05)
    meters = {"a trace": Meter("read"), "tasks": Counter("read", "tasks"), "a study": StudyMeter("read")}
    with meters[kind] as meter:
        if isinstance(meter, Meter):
            meter(30, 100, 7_000)
        text = ""
        begun = time.monotonic()
        while text.count("so far") < 3:
            time.sleep(0.01)
            text += capsys.readouterr().err
            assert time.monotonic() - begun < 60
    assert text.startswith("read: ") and ("7,000 requests" in text) == (kind == "a trace")
    time.sleep(0.1)
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_ready_devices_print_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_LINE_S", 0.01)
    threads = threading.active_count()
    with Preparing(Device.preset("small-1gb"), "none"):
        assert threading.active_count() == threads
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("state", "images", "most"),
    [("random:50", None, "512 MB"), ("steady", "kept", "5 GB"), ("used:1y,filled=50", None, "8.5 GB")],
)
def test_the_preparation_of_a_device_names_what_it_writes_at_most_how_far_it_is_and_how_to_keep_it(
    state: str, images: str | None, most: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_LINE_S", 0.01)
    written = iter(range(0, 1 << 40, 1 << 20))
    monkeypatch.setattr(progress, "preconditioned_bytes", lambda: next(written))
    with Preparing(Device.preset("small-1gb"), state, images):
        text = ""
        while "left" not in text:
            time.sleep(0.01)
            text += capsys.readouterr().err
    line = next(line for line in text.splitlines() if "left" in line)
    assert f"writes at most {most}" in line and "MB written to precondition, at most" in line
    assert ("--images DIR" in line) == (images is None)


def test_time_left_needs_some_tasks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_SILENCE_S", 0.0)
    monkeypatch.setattr(progress, "_LINE_S", 0.0)
    counter = Counter("advise on nexus5", "simulations of options")
    # The first task may prepare a device that the others share.
    counter(1, 9, 0)
    text = capsys.readouterr().err
    assert "advise on nexus5: 1 of 9 simulations of options" in text and "left" not in text
    counter(3, 9, 0)
    assert ", about " in capsys.readouterr().err


#: Progress meters of work with a realistically long name, with a report at the start.
METERS = """
import time
from emmclab.cli import progress
from emmclab.studies.cell_scheduler import Progress
progress._SILENCE_S = 0.0
name = "simulate messages-of-the-second-of-november.parquet on a-phone-of-2021-with-new-flash"
for what in (name, "read"):
    with progress.Meter(what) as one:
        for done in (30, 60):
            one(done << 20, 100 << 20, 7_654_321)
            time.sleep(0.3)
    with progress.StudyMeter(what) as study:
        for done in (30, 60):
            study(Progress(done, 1_200, 20, 3, 1, 0.5, 3.0, 1))
            time.sleep(0.3)
    with progress.Counter(what, "simulations of options") as counter:
        for done in (30, 60):
            time.sleep(0.2)
            counter(done, 1_200, 20, "12 findings")
"""


@pytest.mark.parametrize("width", [80, 60])
def test_a_line_of_progress_fits_the_terminal_and_no_part_of_it_is_cut(width: int) -> None:
    terminal, its_end = os.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-c", METERS], stdin=its_end, stdout=its_end, stderr=its_end, env=environment
    ) as run:
        os.close(its_end)
        written = b""
        try:
            while part := os.read(terminal, 65_536):
                written += part
        except OSError:
            # The other end of the pipe is closed.
            pass
    os.close(terminal)
    assert run.returncode == 0, written.decode()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    lines = {line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()}
    parts = (
        r"\d+ %|7,654,321 requests|[\d.]+ M/s|\d+ of 1,200 (cells|simulations of options)|12 findings|"
        r"20 were finished before|3 failed|1 set aside|about \d+ (s|min|h) left|\d+ s so far"
    )
    for line in lines:
        assert len(line) <= width, line
        behind = re.sub(r"^(simulate.*?flash|sim.*…[^:]*|read)[ █▏▎▍▌▋▊▉]*:? *", "", line)
        assert all(re.fullmatch(parts, part) for part in behind.split(", ")), line
    text = "\n".join(lines)
    for word in ("60 %, 7,654,321 requests", "60 of 1,200 cells", "60 of 1,200 simulations"):
        assert text.count(word) >= 2, text
    assert " M/s" in text and "3 failed, 1 set aside" in text and ("█" in text) == (width == 80), text

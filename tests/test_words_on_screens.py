"""Terminal outputs state their subject, use suitable units, fit 80 columns without lost digits, and show progress."""

import fcntl
import io
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

import emmclab as package
from applications import SMALL
from conftest import csv_trace, emmclab, emmclab_json, emmclab_ok
from emmclab.apps.closed_loop import run_application
from emmclab.cli import progress
from emmclab.cli.progress import Counter, Meter, Preparing, StudyMeter, Working
from emmclab.cli.show_crash import _device
from emmclab.cli.tables import DataConsole, framed, show_explained
from emmclab.crash import Options
from emmclab.pages.assemble import _without
from emmclab.pages.crash import headline
from emmclab.runtime.document import duration, size
from emmclab.simulation.device import Device
from emmclab.traces.profile_fields import TABLES


def test_a_figure_of_settings_does_not_list_inputs_that_it_lacks_nor_one_of_inputs_settings() -> None:
    inputs = ["Idle", "Movie"]
    assert _without({"open", "programmed"}, inputs) == []
    assert _without({"Idle"}, inputs) == ["Movie"]


@pytest.mark.parametrize("online", [True, False])
def test_a_run_names_its_network_only_if_the_program_uses_one(online: bool, tmp_path: Path) -> None:
    path = tmp_path / "program.toml"
    step = '{ network = { size = "10KB" } },'
    assert step in SMALL
    path.write_text(SMALL if online else SMALL.replace(step, ""))
    result = run_application(str(path), "nexus5", precondition="none")
    assert result.run_name == ("nexus5 over wifi" if online else "nexus5")


def test_writes_of_a_device_with_a_write_buffer_are_complete_there(trace: Path) -> None:
    run = emmclab("simulate", trace, "--device", "emmc51-cache", "--wrap-addresses")
    assert "complete in the write buffer, durable ones" in " ".join(run.stdout.split())
    plain = emmclab("simulate", trace, "--device", "iiswc15-4ps", env={"COLUMNS": "150"})
    assert "writes complete when" in " ".join(plain.stdout.split())


def test_the_verdict_of_power_cuts_names_the_layers_above_the_device() -> None:
    facts = {"lies": "none", "device": "emmc51-cache", "layers": ["journal:aware"]}
    stored: Any = SimpleNamespace(facts=SimpleNamespace(**facts))
    assert _device(stored, Options()) == "emmc51-cache below journal:aware"
    summary = {
        "states": 3,
        "cuts": 2,
        "findings": [],
        "documented": [],
        "doubts": [],
        "verdict": "kept",
        "log": facts | {"acknowledgements": 1},
        "options": {"check": "sqlite"},
    }
    assert headline(summary).endswith("of 2 cuts below journal:aware")
    unchecked = headline(summary | {"options": {"check": None}})
    assert unchecked.endswith("; nothing checked the data of the workload")


def test_the_time_of_a_collection_is_said_to_be_assumed(trace: Path) -> None:
    (profile,) = emmclab_json("profile", trace)
    assert json.dumps(profile["idle_gc"])
    stdout = " ".join(emmclab("profile", trace).stdout.split())
    assert "each, assumed) fit into single gaps" in stdout
    assert "The assumed device is the 4PS of the paper, not the one of the trace: 512 of 1,024 pages of 4 KB" in stdout


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of 0.65 s; the device is busy for a third of it."""
    rows = [f"{at * 1_000_000},{at * 1_000_000 + 350_000},{at * 8},8,write" for at in range(650)]
    return csv_trace(tmp_path_factory.mktemp("short") / "short.csv", "arrival_ns,complete_ns,sector,sectors,op", rows)


def test_a_trace_below_a_second_has_a_duration_and_idle_time(short: Path) -> None:
    done = emmclab_ok("profile", short)
    (row,) = re.findall(r"^short +(\S+) +[\d.,]+ +[\d.,]+ +100\.00 ", done.stdout, re.MULTILINE)
    assert row == "0.649"
    assert re.search(r"Idle time: 4\d\d ms \(6\d\.\d %\)", done.stdout)
    assert not re.search(r"\b0 s \(", done.stdout)


def test_durations_and_sizes_are_in_the_unit_that_fits() -> None:
    assert [duration(value) for value in (0.0000123, 0.5, 61.0, 7200.0)] == ["12.3 us", "500 ms", "61 s", "2 h"]
    assert size(63_668 * 1024) == "62.2 MB"


def test_bins_are_in_the_unit_that_fits(tmp_path: Path) -> None:
    rows = [f"{at * 300_000_000_000},{at % 3 * 8},8,write" for at in range(60)]
    path = csv_trace(tmp_path / "slow.csv", "arrival_ns,sector,sectors,op", rows)
    figures = package.profile(path)["figures"]
    bins = [row["bin"] for rows in figures.values() for row in rows if "bin" in row]
    assert any("min" in item for item in bins)
    assert [item for item in bins if re.search(r"\d{4,}|\.\d{3,}\d", item)] == []


@pytest.mark.parametrize("columns", [80, 100])
def test_tables_of_a_profile_fit_the_terminal(columns: int) -> None:
    paths = package.bundled()
    for chosen in (paths[:1], paths):
        done = emmclab_ok("profile", *chosen, env={"COLUMNS": str(columns)})
        tables = done.stdout.partition("Table III")[2].partition(f"\n{chosen[0].stem}\nBy operation")[0]
        assert max(len(line.rstrip()) for line in tables.splitlines()) <= columns
        profiles = emmclab_json("profile", *chosen)
        for _, fields in TABLES:
            for field in fields:
                for profile in profiles:
                    assert field.text(profile[field.name]) in tables, (field.name, profile["name"])


def test_flags_that_a_format_cannot_record_are_not_zero(trace: Path) -> None:
    flags = {row["flag"]: row for row in package.profile(trace).figure("flags")}
    assert flags["packed"]["pct"] == 0
    assert flags["sync"]["pct"] is None and flags["flush"]["requests"] is None
    recorded = {row["flag"]: row for row in package.profile(package.bundled()[3]).figure("flags")}
    # The recorder on Linux cannot record packed commands.
    assert [name for name, row in recorded.items() if row["pct"] is None] == ["packed"]


COLUMNS = 80
#: Realistically long names of a trace, a device and a study.
TRACE = "messages-of-the-second-of-november-with-a-write-ahead-log"
DEVICE = "a-phone-of-2021-with-the-flash-of-its-successor"
COMMANDS = [
    "explain nexus5",
    "explain {device}.toml",
    "explain ufs31 {device}.toml",
    "explain ufs31 ufs40 --trace {trace}.parquet",
    "explain gc.",
    "explain --glossary",
    "explain {trace}.parquet",
    "explain two.json",
    "explain two.json#1 two.json#2",
    "formats",
    "layers",
    "devices",
    "devices --capacity 128GB",
    pytest.param("devices --check ufs31", marks=pytest.mark.slow),
    "devices --check emmc51-cache",
    "papers",
    "papers tables",
    "fleet fleet",
    "head {trace}.parquet",
    "profile {trace}.parquet --percentiles 50,90,99,99.9,99.99,99.999",
    "profile {trace}.parquet other.parquet --compare",
    "profile {trace}.parquet --against other.parquet",
    "journal {trace}.parquet",
    "simulate {trace}.parquet --device {device}.toml --layer pass-through",
    "simulate {trace}.parquet --device ufs31 --percentiles 50,99.99",
    "compare {trace}.parquet --devices emmc51-cache,{device}.toml",
    "compare {trace}.parquet --devices emmc51-cache,{device}.toml --percentiles 50,90,99,99.9,99.99",
    "compare {trace}.parquet --devices emmc51-cache --layers none,journal:delta,journal:aware",
    "compare {trace}.parquet --devices emmc51-cache,{device}.toml --seeds 2 --precondition random:1",
    "advise {trace}.parquet --device {device}.toml --new",
    "validate {trace}.parquet --device {device}.toml",
    "apps",
    "apps hosts",
    "apps run facebook --device {device}.toml --precondition none",
    "apps compare facebook --devices {device}.toml,emmc51-cache --networks wifi,usb --precondition none",
    "apps solutions facebook --device {device}.toml --precondition none --solution lfs",
    "query --trace {trace}.parquet 'select * from trace limit 3'",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace, a device and results with long names."""
    folder = tmp_path_factory.mktemp("narrow")
    trace = next(path for path in package.bundled() if path.stem == "messages-wal")
    (folder / "fleet").mkdir()
    for name in (TRACE, "fleet/one", f"fleet/{TRACE}"):
        shutil.copy(trace, folder / f"{name}.parquet")
    shutil.copy(next(path for path in package.bundled() if path.stem == "browser-cache"), folder / "other.parquet")
    shutil.copy(folder / "other.parquet", folder / "fleet" / "other.parquet")
    settings = Device.preset("ufs40").to_toml()
    text = re.sub(r'^name = ".*"$', f'name = "{DEVICE}"', settings, count=1, flags=re.MULTILINE)
    (folder / f"{DEVICE}.toml").write_text(text)
    done = emmclab("compare", f"{TRACE}.parquet", "--devices", "ufs31,nexus5", "--json", cwd=folder)
    (folder / "two.json").write_text(done.stdout)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_no_table_of_a_command_is_wider_than_the_terminal_or_cut(command: str, folder: Path) -> None:
    words = command.format(trace=TRACE, device=DEVICE)
    done = emmclab_ok(*shlex.split(words), cwd=folder, env={"COLUMNS": str(COLUMNS)})
    wide = [line for line in done.stdout.splitlines() if len(line.rstrip()) > COLUMNS and _of_a_table(line)]
    assert wide == []
    assert "…" not in done.stdout


def _of_a_table(line: str) -> bool:
    """Return whether a line has columns or is the rule below headings, instead of a wrapped sentence."""
    return "  " in line.strip() or "─" in line


def _printed(table: Table, width: int) -> str:
    out = io.StringIO()
    DataConsole(file=out, width=width, highlight=False, emoji=False).print(table)
    return out.getvalue()


@pytest.mark.parametrize("width", [200, 80, 60, 40])
def test_a_table_that_is_too_wide_has_all_its_numbers_and_names(width: int) -> None:
    table = framed("Wide")
    names = ["a-name-of-a-trace-that-is-as-long-as-a-sentence", "short"]
    numbers = [[f"{column}{row},{column * 7:06d}.{row}" for column in range(1, 9)] for row in range(2)]
    table.add_column("Name")
    for column in range(1, 9):
        table.add_column(f"Heading\n{column}", justify="right")
    for name, cells in zip(names, numbers, strict=True):
        table.add_row(Text(name), *cells)
    text = _printed(table, width)
    assert max(map(len, map(str.rstrip, text.splitlines()))) <= width
    result = text.split()
    assert [number for cells in numbers for number in cells if result.count(number) != 1] == []
    first = "".join(line.split(" ", 1)[0] for line in text.splitlines())
    assert all(name in first for name in names)
    assert result.count("Heading") == 8


def test_parts_of_a_table_are_alike_in_width_and_have_the_names_of_the_rows() -> None:
    table = framed()
    for heading in ("name", *"abcdefghij"):
        table.add_column(heading, justify="left" if heading == "name" else "right")
    table.add_row("row", *(["1234567"] * 10))
    blocks = [block.splitlines() for block in _printed(table, 80).strip("\n").split("\n\n")]
    assert [block[0].split() for block in blocks] == [["name", *"abcde"], ["name", *"fghij"]]
    assert [block[-1].split()[0] for block in blocks] == ["row", "row"]


def test_a_meaning_stands_below_its_row_in_the_width_of_the_terminal() -> None:
    table = framed("Settings")
    for heading in ("Setting", "Value"):
        table.add_column(heading)
    table.add_row("gc.policy", "greedy")
    out = io.StringIO()
    console = DataConsole(file=out, width=30, highlight=False, emoji=False)
    show_explained(console, table, [Text("What is collected, and in which order")])
    assert out.getvalue().splitlines() == [
        "Settings",
        "Setting    Value",
        "─" * 17,
        "gc.policy  greedy",
        "    What is collected, and in",
        "    which order",
    ]


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

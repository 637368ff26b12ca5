"""Trace formats: their page is complete, and files of each recorder have the columns on the page."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

import emmclab as api
from conftest import ROOT, emmclab, emmclab_json, emmclab_ok, need
from emmclab import _core
from perfetto_messages import events, recording
from reference import reference

FORMATS = {entry["name"]: entry for entry in _core.formats()}
#: Columns that every format fills.
ALWAYS = {"arrival_ns", "sector", "sectors", "op", "flags"}


def columns(trace: api.Trace) -> set[str]:
    """Return the columns that contain a value, besides those that every format fills."""
    return {name for row in trace.rows(10_000) for name in row if row[name] not in (None, [])} - ALWAYS


def check(path: Path, name: str) -> None:
    """Check that a file has this format, and no columns that the page does not list."""
    trace = api.read(path)
    assert trace.header["format"] == name
    assert columns(trace) <= set(FORMATS[name]["gives"]), name


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, timeout=120, check=False)


def write(folder: Path) -> list[str | Path]:
    """Return a command that writes a file without the page cache."""
    return ["dd", "if=/dev/zero", f"of={folder / 'data'}", "bs=4096", "count=64", "oflag=direct"]


def test_the_page_names_every_format_and_every_file_that_is_none() -> None:
    page = reference("what-can-be-read.md")
    for name, entry in FORMATS.items():
        assert f"| `{name}` | {entry['from']} |" in page.replace("\\\\|", "\\|"), name
    for kind, _ in _core.file_kinds():
        assert kind in page


@pytest.mark.parametrize("name", [name for name, entry in FORMATS.items() if entry["writes"]])
def test_what_is_written_gives_the_columns_of_its_format(name: str, tmp_path: Path) -> None:
    if name == "perfetto":
        pytest.skip("a picture is not read")
    path = tmp_path / ("trace." + {"mqsim": "mqsim"}.get(name, "txt"))
    api.convert(api.bundled()[0], path, to=name)
    assert columns(api.read(path, format=name)) <= set(FORMATS[name]["gives"])


def test_an_iolog_of_fio(tmp_path: Path) -> None:
    need("fio")
    done = run(
        *("fio", "--name=job", "--rw=randwrite", "--bs=4k", "--size=256k", "--ioengine=psync"),
        "--write_iolog=job.log",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    check(tmp_path / "job.log", "fio")


def test_recordings_of_trace_cmd(root: None, tmp_path: Path) -> None:
    del root
    need("trace-cmd")
    done = run(
        *("trace-cmd", "record", "-q", "-C", "mono", "-e", "block", "-o", "trace.dat", *write(tmp_path)), cwd=tmp_path
    )
    if done.returncode != 0:
        pytest.skip(f"trace-cmd cannot record here: {done.stderr.decode(errors='replace')[-200:]}")
    check(tmp_path / "trace.dat", "trace-cmd")
    (tmp_path / "report.txt").write_bytes(run("trace-cmd", "report", "trace.dat", cwd=tmp_path).stdout)
    check(tmp_path / "report.txt", "ftrace")


def test_recordings_of_perf(root: None, tmp_path: Path) -> None:
    del root
    if shutil.which("perf") is None:
        # The package of perf depends on the version of the kernel, and is missing on many machines.
        pytest.skip("perf is missing; apt-get install linux-perf")
    done = run(*("perf", "record", "-q", "-a", "-e", "block:*", "-o", "perf.data", *write(tmp_path)), cwd=tmp_path)
    if done.returncode != 0:
        pytest.skip(f"perf cannot record here: {done.stderr.decode(errors='replace')[-200:]}")
    (tmp_path / "script.txt").write_bytes(run("perf", "script", "-i", "perf.data", cwd=tmp_path).stdout)
    check(tmp_path / "script.txt", "ftrace")


HEADING = ["arrival_us", "op", "offset_bytes", "size_kb", "process"]
ROWS = [["1", "write", "4096", "4", "a"], ["5", "read", "8192", "8", '"b;c,d"']]


def written(folder: Path, separator: str, heading: list[str] | None = HEADING) -> Path:
    """Write a file of two requests."""
    path = folder / "other.csv"
    lines = ([heading] if heading else []) + ROWS
    path.write_text("".join(separator.join(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
def test_commas_semicolons_and_tabs_separate_columns(separator: str, tmp_path: Path) -> None:
    trace = api.read(written(tmp_path, separator))
    assert trace.header["format"] == "csv"
    assert [(row["arrival_ns"], row["sector"], row["process"]) for row in trace.rows()] == [
        (1000, 8, "a"),
        (5000, 16, "b;c,d"),
    ]


def test_the_reference_lists_every_column_name() -> None:
    page = reference("trace-formats.md")
    columns = api._core.csv_columns()
    assert len(columns) > 10
    for column in columns:
        assert f"| `{column['name']}` |" in page
        for unit in column["units"]:
            assert f"`{column['name']}{unit}`" in page


FIXTURES = ROOT / "crates/record/tests/fixtures"
REQUESTS = 245


def unpacked(name: str) -> str:
    with pyarrow.input_stream(str(FIXTURES / name), compression="zstd") as stream:
        return bytes(stream.read()).decode()


@pytest.fixture(scope="module")
def text() -> str:
    """Return the text that the kernel's tracer wrote for a SQLite workload."""
    return unpacked("host.trace.zst")


@pytest.fixture(scope="module")
def perfetto_trace(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording, written with Perfetto's message classes."""
    path = tmp_path_factory.mktemp("perfetto") / "chat.perfetto-trace"
    path.write_bytes(recording(text))
    return path


@pytest.fixture(scope="module")
def systrace(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording in an HTML page of systrace."""
    path = tmp_path_factory.mktemp("systrace") / "chat.html"
    script = '  <script class="trace-data" type="application/text">\n'
    path.write_text(f"<!DOCTYPE html>\n<html>\n<body>\n{script}{text}  </script>\n</body>\n</html>\n")
    return path


@pytest.fixture(scope="module")
def trace_dat() -> Path:
    """The recording in a file that trace-cmd wrote."""
    return ROOT / "fuzz/corpus/trace_dat/packed"


RECORDED_BY = {"perfetto": "perfetto_trace", "systrace": "systrace", "trace-cmd": "trace_dat"}


@pytest.fixture(params=RECORDED_BY)
def recorded(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """The name of a format, and the recording in this format."""
    return request.param, request.getfixturevalue(RECORDED_BY[request.param])


def test_a_recording_gives_the_figures_of_its_text(recorded: tuple[str, Path], text: str, tmp_path: Path) -> None:
    name, path = recorded
    plain = tmp_path / "plain.txt"
    plain.write_text(text)
    expected = api.profile(plain)
    (profile,) = emmclab_json("profile", path)
    assert api.read(path).header["format"] == name
    for name in ("requests", "data_size_kb", "max_size_kb", "mean_size_kb", "write_requests_pct"):
        assert profile[name] == expected[name], name
    counts = ("paired", "kept", "split", "merged", "unpaired", "lost")
    assert [profile["ledger"][name] for name in counts] == [expected["ledger"][name] for name in counts]
    assert profile["ledger"]["kept"] == REQUESTS


def test_every_command_takes_them(perfetto_trace: Path, trace_dat: Path, tmp_path: Path) -> None:
    explained = emmclab_json("explain", perfetto_trace)
    assert (explained["format"], explained["recognised_by"]) == ("perfetto", "its content")
    assert len(emmclab_json("head", trace_dat, "-n", 3)) == 3
    target = tmp_path / "out.parquet"
    assert emmclab("convert", trace_dat, target).returncode == 0
    assert api.read(target).ledger == api.read(trace_dat).ledger
    emmclab_ok("simulate", perfetto_trace, "--device", "small-1gb", "--json")


BESIDE = re.compile(
    r"\s*(?P<task>.+)-(?P<pid>\d+)\s+\[\d+\] \S+\s+(?P<s>\d+)\.(?P<us>\d+): (?P<event>\w+): (?P<rest>.*)"
)
MMC_FIELDS = {"block_size": "blksz", "sbc_retires": "sbc_retries"}


def _other_event(number: int, line: str) -> Any:
    """Return the Perfetto event for a line of the tracer from a driver or a file system."""
    match = BESIDE.match(line)
    assert match, line
    time = int(match["s"]) * 10**9 + int(match["us"]) * 1000 + number % 1000
    event = perfetto.FtraceEvent(timestamp=time, pid=int(match["pid"]))
    name, rest = match["event"], match["rest"]
    fields: dict[str, int] = {
        key: int(value, 0) for key, value in re.findall(r"(\w+)[ =]+(-?(?:0x)?[0-9a-f]+)\b", rest)
    }
    if device := re.search(r"dev\D+(\d+),(\d+)", rest):
        fields["dev"] = int(device[1]) << 8 | int(device[2])
    if "sync_file" in name:
        message = getattr(event, name)
        for key in ("dev", "ret"):
            if key in fields and key in message.DESCRIPTOR.fields_by_name:
                setattr(message, key, fields[key])
        return event
    event.generic.event_name = name
    if request := re.match(r"(\w+): (?:start|end) struct mmc_request\[(\w+)\]", rest):
        event.generic.field.add(name="name", str_value=request[1])
        fields["mrq"] = int(request[2], 16)
    for key, value in fields.items():
        typed_value = {"int_value": value} if value < 0 else {"uint_value": value}
        event.generic.field.add(name=MMC_FIELDS.get(key, key), **typed_value)
    return event


def test_commands_waits_and_journals_are_those_of_the_kernels_text(tmp_path: Path) -> None:
    text = unpacked("debian-6.12-card.trace.zst")
    plain = tmp_path / "plain.txt"
    plain.write_text(text)
    trace = perfetto.Trace()
    bundle = trace.packet.add(trusted_packet_sequence_id=2).ftrace_events
    for number, line in enumerate(text.splitlines()):
        if line.startswith("#"):
            continue
        if ": block_" in line:
            bundle.event.extend(event for _, event in events(line))
            bundle.event[-1].timestamp += number % 1000
        else:
            bundle.event.append(_other_event(number, line))
    path = tmp_path / "card.perfetto-trace"
    path.write_bytes(trace.SerializeToString())
    activity, expected = (_activity(path), _activity(plain))
    (host,) = activity["hosts"]
    assert {row["kind"]: row["count"] for row in host["commands"]} == {
        "read": 94,
        "write": 52,
        "discard": 6,
        "status": 52,
    }
    assert [(row["process"], row["file_system"], row["calls"]) for row in activity["syncs"]] == [
        ("dd", "ext4", 5),
        ("dd", "f2fs", 5),
    ]
    assert activity["journals"] == [{"device": "179,1", "commits": 5, "handles": 20, "blocks": 41}]
    output = emmclab("explain", path).stdout
    for words in ("Commands of mmc0", "Waits for durability", "journal of 179,1: 5 commits, 41 blocks"):
        assert words in output, output
    # A conversion preserves it.
    target = tmp_path / "card.parquet"
    assert emmclab("convert", path, target).returncode == 0
    assert _activity(target) == activity
    # The waits are equal except for the nanoseconds, which the conversion to Perfetto adds.
    assert _without_times(activity) == _without_times(expected)


def _activity(path: Path) -> dict[str, Any]:
    """Read a trace to its end; return its activity besides requests."""
    trace = api.read(path)
    assert trace.ledger["lost"] == 0
    activity: dict[str, Any] = json.loads(trace.header["activity"] or "")
    return activity


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(part) for key, part in value.items() if not key.endswith("_ns")}
    return [_without_times(part) for part in value] if isinstance(value, list) else value

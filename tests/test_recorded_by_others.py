"""Traces of other recorders on the command line: one recording in each of their formats."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

import emmclab as api
from conftest import ROOT, emmclab, emmclab_json, emmclab_ok
from perfetto_messages import events, recording

FIXTURES = ROOT / "crates/record/tests/fixtures"
REQUESTS = 245


@pytest.fixture(scope="module")
def text() -> str:
    """Return the tracer's text of a SQLite workload."""
    with pyarrow.input_stream(str(FIXTURES / "host.trace.zst"), compression="zstd") as stream:
        return bytes(stream.read()).decode()


@pytest.fixture(scope="module")
def perfetto_trace(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording, written with Perfetto's own message classes."""
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
    return FIXTURES / "host.dat"


FORMATS = {"perfetto": "perfetto_trace", "systrace": "systrace", "trace-cmd": "trace_dat"}


@pytest.fixture(params=FORMATS)
def recorded(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A format, and the recording in it."""
    return request.param, request.getfixturevalue(FORMATS[request.param])


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


def _beside(number: int, line: str) -> Any:
    """Return the Perfetto event for a line of a driver or a file system."""
    found = BESIDE.match(line)
    assert found, line
    time = int(found["s"]) * 10**9 + int(found["us"]) * 1000 + number % 1000
    event = perfetto.FtraceEvent(timestamp=time, pid=int(found["pid"]))
    name, rest = found["event"], found["rest"]
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
        given = {"int_value": value} if value < 0 else {"uint_value": value}
        event.generic.field.add(name=MMC_FIELDS.get(key, key), **given)
    return event


def test_commands_waits_and_journals_are_those_of_the_kernels_text(tmp_path: Path) -> None:
    with pyarrow.input_stream(str(FIXTURES / "debian-6.12-card.trace.zst"), compression="zstd") as stream:
        text = bytes(stream.read()).decode()
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
            bundle.event.append(_beside(number, line))
    path = _written(tmp_path / "card.perfetto-trace", trace.SerializeToString())
    found, expected = (_activity(path), _activity(plain))
    (host,) = found["hosts"]
    assert {row["kind"]: row["count"] for row in host["commands"]} == {
        "read": 94,
        "write": 52,
        "discard": 6,
        "status": 52,
    }
    assert [(row["process"], row["file_system"], row["calls"]) for row in found["syncs"]] == [
        ("dd", "ext4", 5),
        ("dd", "f2fs", 5),
    ]
    assert found["journals"] == [{"device": "179,1", "commits": 5, "handles": 20, "blocks": 41}]
    shown = emmclab("explain", path).stdout
    for words in ("Commands of mmc0", "Waits for durability", "journal of 179,1: 5 commits, 41 blocks"):
        assert words in shown, shown
    # A conversion preserves it.
    target = tmp_path / "card.parquet"
    assert emmclab("convert", path, target).returncode == 0
    assert _activity(target) == found
    # Each one is the same except for the nanoseconds, which were invented.
    assert _without_times(found) == _without_times(expected)


def _activity(path: Path) -> dict[str, Any]:
    """Read a trace to its end; return what it contains besides its requests."""
    trace = api.read(path)
    assert trace.ledger["lost"] == 0
    activity: dict[str, Any] = json.loads(trace.header["activity"] or "")
    return activity


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(part) for key, part in value.items() if not key.endswith("_ns")}
    return [_without_times(part) for part in value] if isinstance(value, list) else value


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path

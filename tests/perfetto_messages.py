"""Converts a recording of emmclab to the form that Perfetto writes, with Perfetto's message classes."""

import re
from collections.abc import Iterator
from typing import Any

import pyarrow
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

from conftest import ROOT

LINE = re.compile(
    r"\s*(?P<task>.+)-(?P<pid>\d+)\s+\[(?P<cpu>\d+)\] \S+\s+(?P<s>\d+)\.(?P<us>\d+): (?P<event>\w+): "
    r"(?P<major>\d+),(?P<minor>\d+) (?P<rwbs>\w+) .*?(?P<sector>\d+) [+/] (?P<number>\d+)"
)


def events(text: str) -> Iterator[tuple[int, Any]]:
    """Yield CPU and Perfetto event for each line of the tracer's text."""
    for number, line in enumerate(text.splitlines()):
        match = LINE.match(line)
        if match is None:
            assert line.startswith("#"), line
            continue
        # The times in the text are microseconds; nanoseconds are added to preserve the order of the lines.
        time = int(match["s"]) * 10**9 + int(match["us"]) * 1000 + number % 1000
        event = perfetto.FtraceEvent(timestamp=time, pid=int(match["pid"]))
        device = int(match["major"]) << 8 | int(match["minor"])
        fields = {"dev": device, "sector": int(match["sector"]), "rwbs": match["rwbs"], "comm": match["task"]}
        if match["event"] == "block_rq_merge":
            event.generic.event_name = match["event"]
            for name, value in (fields | {"nr_sector": int(match["number"])}).items():
                kind = {"str_value": value} if isinstance(value, str) else {"uint_value": value}
                event.generic.field.add(name=name, **kind)
        else:
            if match["event"] == "block_rq_complete":
                del fields["comm"]
            length = "new_sector" if match["event"] == "block_split" else "nr_sector"
            message = getattr(event, match["event"])
            for name, value in (fields | {length: int(match["number"])}).items():
                setattr(message, name, value)
        yield int(match["cpu"]), event


def recording(text: str) -> bytes:
    """Return the trace for the text of a SQLite workload: bundles of each CPU, and the other packets."""
    trace = perfetto.Trace()
    clocks = trace.packet.add(trusted_packet_sequence_id=1).clock_snapshot.clocks
    for clock, time in ((1, 1_700_000_000_000_000_000), (6, 5_000_000_000_000)):
        clocks.add(clock_id=clock, timestamp=time)
    trace.packet.add(timestamp=1).trace_config.buffers.add(size_kb=1024)
    ftrace_events = list(events(text))
    for begin in range(0, len(ftrace_events), 300):
        for cpu in (0, 1):
            bundle = trace.packet.add(trusted_packet_sequence_id=2).ftrace_events
            bundle.cpu = cpu
            bundle.event.extend(event for at, event in ftrace_events[begin : begin + 300] if at == cpu)
            bundle.event.add(timestamp=1, pid=1).sched_switch.prev_comm = "swapper"
    threads = {event.pid for _, event in ftrace_events if event.block_bio_queue.comm == "sqlite3"}
    tree = trace.packet.add().process_tree
    for pid in sorted(threads):
        tree.processes.add(pid=pid, ppid=1, cmdline=["com.example.chat", "--now"])
    trace.packet.add().ftrace_stats.phase = perfetto.FtraceStats.END_OF_TRACE
    data: bytes = trace.SerializeToString()
    return data


def host_text() -> str:
    """Return the text that the kernel's tracer wrote for a SQLite workload."""
    path = str(ROOT / "crates/record/tests/fixtures/host.trace.zst")
    with pyarrow.input_stream(path, compression="zstd") as stream:
        return bytes(stream.read()).decode()

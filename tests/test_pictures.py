"""Traces for ui.perfetto.dev are decoded with Perfetto's published definitions, and compared with tables."""

import gzip
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

import emmclab as api
from applications import NEW
from conftest import assert_refused, csv_trace, emmclab, emmclab_json, emmclab_ok
from emmclab.apps.closed_loop import STATES

EVENT = perfetto.TrackEvent


@dataclass
class Drawn:
    """A slice or an instant."""

    track: tuple[str, ...]
    name: str
    category: str
    begin: int
    end: int
    arguments: dict[str, Any]


@dataclass
class Picture:
    """The content of a trace; the name of a track includes the names of its parent tracks."""

    slices: list[Drawn] = field(default_factory=list)
    instants: list[Drawn] = field(default_factory=list)
    counters: dict[tuple[str, ...], list[tuple[int, float]]] = field(default_factory=dict)
    threads: set[tuple[str, ...]] = field(default_factory=set)

    def below(self, *track: str) -> list[Drawn]:
        """Return the slices of a track and of the tracks below it."""
        return [part for part in self.slices if part.track[: len(track)] == track]


def picture(path: Path) -> Picture:
    """Decode a trace, and check the rules of Perfetto for traces."""
    content = path.read_bytes()
    trace = perfetto.Trace()
    trace.ParseFromString(gzip.decompress(content) if path.suffix == ".gz" else content)
    drawn_trace = Picture()
    paths: dict[int, tuple[str, ...]] = {}
    interned: dict[str, dict[int, str]] = defaultdict(dict)
    open_slices: dict[int, Drawn] = {}
    latest: dict[int, int] = {}
    for number, packet in enumerate(trace.packet):
        assert not len(UnknownFieldSet(packet))
        assert packet.trusted_packet_sequence_id == 1
        cleared = packet.sequence_flags & perfetto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        assert bool(cleared) == (number == 0)
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            for entry in getattr(packet.interned_data, kind):
                assert entry.iid not in interned[kind]
                interned[kind][entry.iid] = entry.name
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid and track.uuid not in paths
            parent = paths[track.parent_uuid] if track.parent_uuid else ()
            paths[track.uuid] = (*parent, str(track.name or track.process.process_name or track.thread.thread_name))
            if track.HasField("thread"):
                drawn_trace.threads.add(paths[track.uuid])
            if track.HasField("counter"):
                drawn_trace.counters[paths[track.uuid]] = []
        if not packet.HasField("track_event"):
            continue
        event, at = packet.track_event, packet.timestamp
        track, path_of = event.track_uuid, paths[event.track_uuid]
        assert latest.get(track, 0) <= at, f"time goes back on {path_of}"
        latest[track] = at
        if event.type == EVENT.TYPE_COUNTER:
            value = event.double_counter_value or event.counter_value
            drawn_trace.counters[path_of].append((at, value))
        elif event.type == EVENT.TYPE_SLICE_END:
            drawn = open_slices.pop(track)
            drawn.end = at
            drawn_trace.slices.append(drawn)
        else:
            assert packet.sequence_flags & perfetto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            names = interned["debug_annotation_names"]
            arguments = {
                names[note.name_iid]: getattr(note, note.WhichOneof("value")) for note in event.debug_annotations
            }
            (category,) = event.category_iids
            name = interned["event_names"][event.name_iid]
            drawn = Drawn(path_of, name, interned["event_categories"][category], at, at, arguments)
            if event.type == EVENT.TYPE_INSTANT:
                drawn_trace.instants.append(drawn)
            else:
                assert event.type == EVENT.TYPE_SLICE_BEGIN
                assert track not in open_slices, f"a slice within a slice on {path_of}"
                open_slices[track] = drawn
    assert not open_slices
    return drawn_trace


def check_requests(drawn_trace: Picture, rows: list[dict[str, Any]]) -> None:
    """Check that the drawn requests are those of the rows."""
    expected = [(row["arrival_ns"], row["complete_ns"], row["op"], row["sector"], row["sectors"] * 512) for row in rows]
    drawn = [
        (item.begin, item.end, item.name, item.arguments["sector"], item.arguments["bytes"])
        for item in drawn_trace.slices
        if item.category == "request"
    ]
    assert sorted(drawn) == sorted(expected)


def drawn_run(folder: Path, trace: Path, *options: object) -> tuple[Any, Picture]:
    """Simulate a trace; return the result and the picture of the run."""
    out = folder / "run.pftrace"
    return emmclab_json("simulate", trace, *options, "--perfetto", out), picture(out)


def test_a_converted_trace_shows_each_request(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "chat.pftrace"
    assert emmclab("convert", trace, out).returncode == 0
    drawn_trace = picture(out)
    rows = api.read(trace).rows(400)
    check_requests(drawn_trace, rows)
    assert {item.track for item in drawn_trace.slices} == {("requests", "all processes")}
    first = min(drawn_trace.slices, key=lambda item: item.begin)
    assert first.arguments["wait_ns"] == rows[0]["start_ns"] - rows[0]["arrival_ns"]
    assert drawn_trace.counters["requests", "queue depth"][-1][1] == 0


def test_processes_and_devices_have_own_tracks_and_requests_without_an_end_are_instants(tmp_path: Path) -> None:
    rows = ['-500,W,8,8,1500,sqlite3,"8,0",1', '0,R,16,8,900,sqlite3,"8,0",0', '100,W,0,8,,"jbd2/sda","8,16",1']
    source = csv_trace(tmp_path / "t.csv", "arrival_ns,op,sector,sectors,complete_ns,process,device,flags", rows)
    out = tmp_path / "t.pftrace"
    emmclab_ok("convert", source, out)
    drawn_trace = picture(out)
    assert [(item.track, item.begin, item.end) for item in drawn_trace.slices] == [
        (("requests of 8,0", "sqlite3"), 0, 2000),
        (("requests of 8,0", "sqlite3"), 500, 1400),
    ]
    (instant,) = drawn_trace.instants
    assert (instant.track, instant.begin) == (("requests of 8,16", "jbd2/sda"), 600)
    assert drawn_trace.slices[0].arguments["flags"] == "sync"
    assert [value for _, value in drawn_trace.counters["requests of 8,0", "queue depth"]] == [1, 2, 1, 0]


@pytest.mark.parametrize(
    ("device", "options"),
    [
        ("emmc51-tlc", []),
        ("emmc51-cache", []),
        ("iiswc15-hps", []),
        ("nexus5", ["--layer", "pass-through"]),
        ("nexus5", ["--mode", "back_to_back"]),
    ],
)
def test_a_run_shows_what_its_tables_count(device: str, options: list[str], trace: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    result, drawn_trace = drawn_run(tmp_path, trace, "--device", device, *options, "--events", rows)
    check_requests(drawn_trace, pyarrow.parquet.read_table(rows).to_pylist())
    flash = result["flash"]
    on_flash: Counter[str] = Counter()
    for item in drawn_trace.below(f"device {device}"):
        if item.track[-1].startswith(("way", "plane")) and not item.track[-1].endswith("collection"):
            on_flash[item.name.partition(" ")[0]] += item.arguments.get("pages", 1)
    moved = flash["page_programs"]["gc"] + flash["page_programs"]["wear"]
    assert on_flash["program"] + on_flash["move"] == flash["page_programs"]["total"]
    assert on_flash["move"] == moved
    assert on_flash["erase"] == flash["block_erases"]
    waking = [item for item in drawn_trace.below(f"device {device}", "power") if item.name == "waking up"]
    assert len(waking) == result["power"]["wake_ups"]


def test_requests_have_the_row_of_their_process_under_layers_too(tmp_path: Path) -> None:
    rows = [f"{at * 100_000},{'RW'[at % 3 > 0]},{at % 50 * 8},8,{'ab'[at % 2]}" for at in range(300)]
    source = csv_trace(tmp_path / "t.csv", "arrival_ns,op,sector,sectors,process", rows)
    for options in ([], ["--layer", "advil"], ["--set", "controller.scheduling=read_first"]):
        _, drawn_trace = drawn_run(tmp_path, source, "--device", "small-1gb", *options)
        requests = [request for request in drawn_trace.slices + drawn_trace.instants if request.category == "request"]
        assert len(requests) == 300
        for request in requests:
            assert request.track == ("requests", "ab"[request.begin // 100_000 % 2]), options


def test_collection_is_drawn_from_its_choice_to_its_erase(trace: Path, tmp_path: Path) -> None:
    small = ["--device", "small-1gb", "--set", "geometry.block_groups.0.blocks=32", "--wrap-addresses"]
    result, drawn_trace = drawn_run(tmp_path, trace, *small, "--precondition", "steady:1", "--passes", 4)
    collections = [item for item in drawn_trace.slices if item.name == "garbage collection"]
    erases = {(item.arguments["block"], item.end) for item in drawn_trace.slices if item.name == "erase"}
    assert len(erases) == result["flash"]["block_erases"] > 0
    ended = {(item.arguments["block"], item.end) for item in collections}
    assert len(ended & erases) >= len(collections) - 4, "but for those under way at the end of the run"
    assert all(item.track[-1].endswith(": collection") for item in collections)


def test_the_write_buffer_fills_within_its_size_and_the_slc_cache_is_folded(trace: Path, tmp_path: Path) -> None:
    result, drawn_trace = drawn_run(tmp_path, trace, "--device", "emmc51-cache", "--passes", 12)
    size = next(row for row in api.Device.preset("emmc51-cache").explain() if row.key == "cache.size_kb")
    levels = [value for _, value in drawn_trace.counters["device emmc51-cache", "write buffer"]]
    assert 0 < max(levels) <= int(size["value"]) * 1024
    assert levels[-1] == 0, "it is written at the orderly end of the run"
    folding = [item for item in drawn_trace.slices if item.name == "SLC folding"]
    assert len(folding) >= result["flash"]["block_erases"] > 0


def test_a_picture_changes_no_result_and_is_the_same_each_time(trace: Path, tmp_path: Path) -> None:
    device = api.Device.preset("emmc51-tlc")
    plain = device.simulate(api.read(trace))
    files = [tmp_path / "one.pftrace", tmp_path / "two.pftrace", tmp_path / "three.pftrace.gz"]
    for out in files:
        drawn = device.simulate(api.read(trace), perfetto=out)
        both = [json.loads(json.dumps(run.to_dict() | {"computing": None})) for run in (plain, drawn)]
        assert both[0] == both[1]
    first, second, packed = (path.read_bytes() for path in files)
    assert first == second == gzip.decompress(packed)


@pytest.mark.parametrize("program", ["email", "facebook"])
def test_an_application_shows_its_threads_and_the_critical_path(program: str, tmp_path: Path) -> None:
    # At its end, threads of facebook wait for a signal that never comes.
    out = tmp_path / "run.perfetto-trace"
    result = emmclab_json("apps", "run", program, "--device", "sdcard", *NEW, "--perfetto", out)["app"]
    drawn_trace = picture(out)
    assert drawn_trace.threads == {(program, thread["name"]) for thread in result["threads"]}
    tracks = [(thread["name"], thread["states"]) for thread in result["threads"]]
    for name, states in [*tracks, ("critical path", result["states"])]:
        times = dict.fromkeys(STATES, 0)
        for item in drawn_trace.below(program, name):
            assert item.name == STATES[item.category]
            times[item.category] += item.end - item.begin
        assert times == states, name
    requests = [item for item in drawn_trace.slices if item.category == "request"]
    counts = result["requests"]
    sent = counts["all"]["read"]["requests"] + counts["all"]["write"]["requests"]
    assert len(requests) == sent + counts["flushes"] + counts["discards"]
    fsync = next(item for item in drawn_trace.slices if item.name == "fsync")
    assert {"wait", "class", "partition"} <= fsync.arguments.keys()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["simulate", "{trace}", "--perfetto", "{folder}/run.json"], [".pftrace"]),
        (["simulate", "{trace}", "--perfetto", "{folder}/none/run.pftrace"], ["folder not found"]),
        (
            ["simulate", "{trace}", "--seeds", "3", "--perfetto", "{folder}/run.pftrace"],
            ["cannot share the output", "--seeds"],
        ),
        (["apps", "run", "email", "--perfetto", "{folder}/run.parquet", *NEW], [".pftrace"]),
        (
            ["apps", "compare", "email", "--perfetto", "{folder}/run.pftrace"],
            ["no such option: --perfetto", "emmclab apps compare --help"],
        ),
    ],
    ids=["ending", "folder", "seeds", "application", "comparison"],
)
def test_a_picture_that_cannot_be_is_refused(command: list[str], words: list[str], trace: Path, tmp_path: Path) -> None:
    assert_refused(emmclab(*(word.format(trace=trace, folder=tmp_path) for word in command)), *words)
    assert not list(tmp_path.iterdir())


def test_a_picture_is_not_read_as_a_trace(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "chat.pftrace"
    assert emmclab("convert", trace, out).returncode == 0
    assert_refused(emmclab("profile", out), "chat.pftrace", "picture", "read the trace from which")

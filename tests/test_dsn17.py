"""Flash-aware journaling: annotated traces, the study of modes, its page and measures."""

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

import emmclab as lab
from conftest import Reproduced, emmclab_json
from crash_runs import cut_result
from emmclab.cli.claims import results_of, show_claims
from emmclab.papers import claims
from emmclab.papers.claims import judge_study
from emmclab.papers.dsn17.journaling import DEVICES, IDEAL, JUDGED, MODES, PROGRAMS, SQLITE, recovers, seconds
from emmclab.papers.measures import run_measure
from emmclab.papers.pages import write_page
from emmclab.papers.registry import papers
from emmclab.studies import Results
from emmclab.studies.input import Input
from emmclab.studies.power_cut_settings import CutCell
from nvram_journal import BORDER, COLUMNS, in_nvram
from record_journal import _join_commits

TRACES = {path.stem: path for path in lab.bundled(annotated=True)}


@pytest.fixture(scope="module")
def results(reproduced: Reproduced) -> Results:
    reproduced.page("dsn17")
    return Results.load(reproduced.results / "dsn17")


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_annotated_trace_names_its_blocks_and_every_request_is_complete(name: str) -> None:
    trace = lab.read(TRACES[name])
    rows = trace.to_arrow().to_pylist()
    assert TRACES[name].stat().st_size < 300_000
    assert "ext4 of Linux" in str(trace.header["source"]) and trace.header["block_notes"] == "ext4"
    assert rows[0]["arrival_ns"] == 0 and all(row["complete_ns"] >= row["arrival_ns"] for row in rows)
    writes = [row for row in rows if row["op"] == "write"]
    assert sum(row["role"] is not None for row in writes) == len(writes)
    # A commit is one write with preflush and FUA, as ext4 requests it.
    commits = [row for row in writes if "commit" in row["role"]]
    assert commits and all(row["flags"] & 6 == 6 for row in commits)
    # The journal begins empty: its superblock is written before its first commit.
    roles = [role for row in writes for role in row["role"]]
    assert roles.index("journal_superblock") < roles.index("commit")


def test_a_study_takes_an_annotated_trace_by_name_and_reads_it_as_it_is() -> None:
    source = Input.of("mail", 1, reading={"only": "op=read"})
    assert (source.name, Path(source.source), source.reading) == ("mail", TRACES["mail"], "{}")


def test_flushes_and_durable_writes_are_timed_as_the_workload_sees_them() -> None:
    trace, device = lab.read(TRACES["mail"]), lab.Device.preset("emmc51-cache")
    rows = trace.to_arrow().to_pylist()
    promised = [row for row in rows if row["op"] == "flush" or (row["op"] == "write" and row["flags"] & 6)]
    durable = device.simulate(trace, mode="closed", layers=["journal:legacy"])["durable"]
    assert durable["requests"] == len(promised)
    assert 0 < durable["p50_ms"] <= durable["p99_ms"] <= durable["max_ms"]
    dropped = device.simulate(trace, mode="closed", layers=["journal:no_barrier"])["durable"]
    assert dropped["requests"] == len(promised) and dropped["mean_ms"] < durable["mean_ms"]
    bare = device.simulate(trace, mode="closed")["durable"]
    assert bare["requests"] == len(promised) and bare["mean_ms"] > dropped["mean_ms"]


def test_the_study_has_every_application_in_every_mode_on_every_device(results: Results) -> None:
    assert not results.failures
    in_nvram = {f"{name}-nvram" for name in SQLITE}
    assert {*PROGRAMS, *(f"{name}-no-journal" for name in PROGRAMS)} | in_nvram == set(TRACES)
    for device in DEVICES:
        for name in PROGRAMS:
            runs = {mode: results.run(mode, input=name, device=device) for mode in MODES}
            assert len({run["requests"]["bytes_written"] for run in runs.values()}) == 1
            assert len({run["durable"]["requests"] for run in runs.values()}) == 1
            counts = {mode: run["layers"][0] for mode, run in runs.items()}
            assert counts["no_journal"]["blocks_dropped"] > 0
            assert counts["no_barrier"]["flushes_saved"] == counts["no_barrier"]["flushes"]
            assert counts["aware"]["log_sectors"] < counts["aware"]["journal_sectors_logged"]
            assert all(count["unknown_writes"] == 0 for count in counts.values())
            ideal = results.run(IDEAL, input=f"{name}-no-journal", device=device)
            bound, base = runs["no_journal"], runs["legacy"]
            assert seconds(bound) < seconds(base)
            assert ideal["durable"]["requests"] > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_on_ext4_without_a_journal_writes_its_metadata_in_place(name: str) -> None:
    rows = lab.read(TRACES[f"{name}-no-journal"]).to_arrow().to_pylist()
    roles = {role for row in rows if row["op"] == "write" for role in row["role"] or ()}
    assert "inode_table" in roles and "data" in roles
    assert not {role for role in roles if role.startswith("journal") or role == "commit"}


@pytest.mark.parametrize("name", SQLITE)
def test_a_journal_in_nvram_has_the_changed_sectors_and_leaves_all_other_requests(name: str) -> None:
    rows, moved = (lab.read(TRACES[trace]).to_arrow().to_pylist() for trace in (name, f"{name}-nvram"))
    assert [{key: row[key] for key in moved[0] if key in COLUMNS} for row in moved] == in_nvram(rows)
    journal = [row for row in rows if {"logged", "commit", "journal_superblock"} & set(row["role"] or ())]
    others = [row for row in rows if row not in journal]
    on_flash, on_nvram = ([row for row in moved if (row["sector"] >= BORDER) is beyond] for beyond in (False, True))
    assert len(on_nvram) == len(journal)
    commits = sum("commit" in row["role"] for row in journal)
    assert len(on_flash) == len(others) + commits, "each commit flushes the flash"
    assert sum(row["sectors"] for row in on_flash) == sum(row["sectors"] for row in others)
    assert sum(row["sectors"] for row in on_nvram) < sum(row["sectors"] for row in journal) / 3
    assert all(row["flags"] == 0 for row in on_nvram)


def test_claims_on_run_times_are_judged_on_devices_with_a_measured_write_and_flush(results: Results) -> None:
    measured = ("a write, 4 KB", "a flush after it, 4 KB")
    for device in DEVICES:
        figures = {row["figure"]: row for row in emmclab_json("devices", "--check", device)["fitted_to"]}
        known = all(figures.get(name, {}).get("published") for name in measured)
        assert known == (device in JUDGED), device
    by_device = {claim.id: claim for claim in judge_study(results) if "by_device" in claim.evidence}
    assert len(by_device) == 6
    for claim in by_device.values():
        assert set(claim.evidence["by_device"]) == set(JUDGED)
        assert claim.evidence["values"] in claim.evidence["by_device"].values()
        assert DEVICES[-1] in claim.reason and "weakest verdict counts" in claim.reason


def test_the_page_gives_answer_modes_and_origin(reproduced: Reproduced, results: Results, tmp_path: Path) -> None:
    page = reproduced.page("dsn17").read_text()
    assert "The mechanisms are our design and the claims are the paper" in page
    assert all(f">{name}<" in page for name in (*PROGRAMS, *MODES))
    second = tmp_path / "again.html"
    write_page(results, judge_study(results), second, None)
    assert second.read_text() == page


def _cell(grid: str, verdict: str) -> dict[str, Any]:
    """Return a stored result with its cell."""
    result = cut_result(verdict, layer="journal", lost_states=3)
    cell = CutCell(grid, "files", "emmc51-cache", {}, {})
    return {**msgspec.to_builtins(result), **msgspec.to_builtins(cell)}


@pytest.mark.parametrize(
    ("tested", "control", "expected"),
    [
        ("kept", "lost", (0, 1)),
        ("lost", "lost", (1, 1)),
        ("rule broken", "kept", (1, 0)),
        ("documented", "lost", (0, 1)),
    ],
)
def test_recovery_is_judged_beside_a_losing_control(tested: str, control: str, expected: tuple[int, int]) -> None:
    cuts = [_cell("aware", tested), _cell("no_barrier", control)]
    results = Results({"name": "dsn17-crash"}, {}, [], "", cuts=cuts)
    measurement, _ = run_measure(recovers, results)
    assert (measurement.values["broken_runs"], measurement.values["control_broken_runs"]) == expected


def test_a_claim_that_needs_root_is_judged_with_its_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paper = papers()["dsn17"]
    [crash] = [rule for rule in claims.rules(paper) if rule.id == "dsn17-crash"]
    monkeypatch.setattr(claims, "rules", lambda _paper: [crash])
    [study] = claims.machine_bound_studies([paper])
    cuts = [_cell("aware", "kept"), _cell("no_barrier", "lost")]
    [claim] = claims.judge({study: Results({"name": study, "cells": 2}, {}, [], "", cuts=cuts)}, [paper])
    assert claim.verdict in claims.TESTED and "1 of 1 runs recover" in claim.measured
    [unknown] = claims.judge({}, [paper])
    assert unknown.verdict == claims.CANNOT and f"emmclab reproduce {study}" in unknown.reason
    # Instead of a figure, the table shows the command that measures it.
    console = Console(file=io.StringIO(), width=200)
    show_claims(console, [unknown])
    assert f"emmclab reproduce {study}" in " ".join(console.file.getvalue().replace("│", " ").split())
    assert results_of([paper], lambda study, _paper: study, tmp_path, 1) == {}


def test_flushes_around_a_commit_are_joined_with_it_and_others_are_not() -> None:
    times = ("arrival_ns", "start_ns", "issue_ns", "complete_ns")

    def row(op: str, at: int, *roles: str) -> dict[str, Any]:
        return {**dict.fromkeys(times, at), "op": op, "flags": 0, "role": list(roles) or None}

    rows = [row("flush", 1), row("write", 2, "data"), row("flush", 3), row("write", 4, "commit"), row("flush", 5)]
    joined_rows, joined = _join_commits(rows)
    assert [request["op"] for request in joined_rows] == ["flush", "write", "write"] and joined == 2
    assert joined_rows[2]["flags"] == 6 and (joined_rows[2]["arrival_ns"], joined_rows[2]["complete_ns"]) == (3, 5)
    assert _join_commits(rows[:4]) == (rows[:4], 0)

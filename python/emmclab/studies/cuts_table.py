"""The table of a study of power cuts: workloads down; file system, device and layer across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emmclab.studies.kinds.cuts import DOCUMENTED, KEPT, LOST, RULE, VERDICTS
from emmclab.studies.results import Results
from emmclab.studies.summary import written
from emmclab.studies.tables import Run

#: The verdict on a cell that failed: its states were not judged.
NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Column:
    """What a run stood on."""

    file_system: str
    device: str
    layer: str

    def __str__(self) -> str:
        above = "" if self.layer == "none" else f", {self.layer}"
        return f"{self.file_system}, {self.device}{above}"


@dataclass(frozen=True)
class Verdict:
    """One run: how much was tried, and what came of it."""

    word: str
    level: str
    cuts: int
    states: int
    lost_states: int
    documented_states: int
    run: Run

    @property
    def text(self) -> str:
        """The verdict in words, with the level that lost."""
        return f"{self.word}: {self.level}" if self.level else self.word


@dataclass(frozen=True)
class Table:
    """Grids of the same workloads; `cells` by workload and column."""

    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    cells: dict[tuple[str, Column], Verdict]


def tables(results: Results) -> list[Table]:
    """Return a table for each set of workloads, in the order of the study; failed cells are in it, too."""
    grids: dict[str, list[Run]] = {}
    for run in (*results.cuts, *results.failures):
        grids.setdefault(run["grid"], []).append(run)
    parts: dict[tuple[str, ...], list[Run]] = {}
    for runs in grids.values():
        parts.setdefault(tuple(dict.fromkeys(run["input"] for run in runs)), []).extend(runs)
    return [_table(rows, runs) for rows, runs in parts.items()]


def _table(rows: tuple[str, ...], runs: Sequence[Run]) -> Table:
    cells = {(run["input"], column_of(run)): _verdict(run) for run in runs}
    return Table(rows, tuple(dict.fromkeys(column_of(run) for run in runs)), cells)


def column_of(run: Run) -> Column:
    """Name file system, device with its settings, and layer of a run.

    >>> settings = {"cache.policy": "fifo"}
    >>> options = {"file_system": "ordered", "layers": ["advil"]}
    >>> str(column_of({"device": "emmc51-cache", "settings": settings, "options": options}))
    'ordered, emmc51-cache cache.policy=fifo, advil'
    """
    settings = [f"{key}={written(value)}" for key, value in run["settings"].items()]
    options = run["options"]
    layer = " ".join(options.get("layers", ())) or "none"
    return Column(options["file_system"], " ".join([run["device"], *settings]), layer)


def _verdict(run: Run) -> Verdict:
    if "message" in run:
        return Verdict(NOT_JUDGED, "", 0, 0, 0, 0, run)
    return Verdict(
        run["verdict"],
        run["lost_at"] or "",
        run["cuts"],
        run["states"],
        run["lost_states"],
        run["documented_states"],
        run,
    )


def counts(results: Results) -> dict[str, int]:
    """Count the cells by verdict."""
    found = dict.fromkeys((*VERDICTS, NOT_JUDGED), 0)
    for run in results.cuts:
        found[run["verdict"]] += 1
    found[NOT_JUDGED] = len(results.failures)
    return {word: count for word, count in found.items() if count}


def headline(results: Results) -> str:
    """Say in one line how many of the runs lost something, and how much was tried."""
    found = counts(results)
    states, cuts = (sum(run[key] for run in results.cuts) for key in ("states", "cuts"))
    lost = found.get(LOST, 0)
    return (
        f"{lost:,} of {len(results.cuts):,} runs lost acknowledged data: {states:,} states after "
        f"{cuts:,} cuts"
    )


def findings(results: Results, *, documented: bool = False) -> list[tuple[Run, dict[str, Any]]]:
    """Return every finding with its run; with `documented`, documented losses instead."""
    key = "documented" if documented else "findings"
    return [(run, one) for run in results.cuts for one in run[key]]


#: What each verdict means, for the legend.
MEANING = {
    KEPT: "every state has all acknowledged data",
    DOCUMENTED: "some states lack what the documentation of SQLite says that it does not promise",
    RULE: "a command breaks a rule of the journal; no state that was tried shows a loss by it",
    LOST: "a state lacks acknowledged data; the level is the lowest one that broke a promise",
    NOT_JUDGED: "the run failed, or its states cannot be recovered",
}

"""Converts a recording to a row: every number of its profile, its histograms, and its metadata."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.errors import ConfigError, EmmclabError, InputError
from emmclab.fleet.table_types import Bins
from emmclab.runtime.files import digest, printable
from emmclab.runtime.table_row import Row
from emmclab.traces.reading import read
from emmclab.traces.recording_files import metadata
from emmclab.traces.trace import Trace

#: Columns of every fleet, before those of metadata and figures, with their meaning.
FIXED = {
    "path": "the file, below the folder of the fleet",
    "refused": "why the file could not be read; null for a recording",
    "digest": "SHA-256 of the file's bytes, first 16 digits",
    "bytes": "size of the file",
    "format": "format that the trace was first read from",
    "trace_device": "the device that the header of the trace names",
}
#: Prefix of the column names of histograms.
HISTOGRAM = "histogram_"
#: Field of an error in the heading of a file, which the options of reading cannot cause.
_HEADING = "heading"
#: Histograms that depend on the order of arrivals, which is unknown if the clock is coarse.
_OF_ARRIVALS = ("inter_arrival", "idle_gap")
#: Options of reading that apply only to files that do not state the unit, with their values.
_UNITS = {"time_unit": ("s", "ms", "us", "ns"), "size_unit": ("sector", "byte", "kb", "page")}
#: Parts of a profile, and of its groups, that are not figures, or have another name in the row.
_NO_FIGURES = {"name", "header", "figures", "findings", "by_operation", "assumed"}
#: Figures that are lists of rows: the fields that name a row, and the fields that are numbers.
_NAMED_ROWS = {
    "alignment": (("op", "page_kb"), ("start_aligned_pct", "size_aligned_pct", "aligned_pct", "space_utilisation_pct")),
    "hot_pages": (("op", "pages_pct"), ("share_pct",)),
    "flags": (("flag",), ("requests", "pct", "per_s")),
}


def row_of(place: Path, path: str, options: Mapping[str, Any]) -> Row:
    """Profile the recording in a file; if it cannot be read, return a row with the reason.

    Raises:
        ConfigError: an option of reading is invalid, or a key of the folders is the name of a figure.
    """
    row = _empty(path)
    try:
        trace = _read(place, options)
        profiler = _core.Profiler(trace.name)
        for batch in trace.batches():
            profiler.update(batch)
        profile = json.loads(profiler.finish(trace.ledger, trace.header, distributions=False))
        histograms = json.loads(profiler.histograms())
        if trace.header["coarse_clock"]:
            for one in histograms:
                if one["name"] in _OF_ARRIVALS:
                    one["counts"] = [0] * len(one["counts"])
    except ConfigError as error:
        if error.field != _HEADING:
            raise
        why = reason(error, str(place), path)
        return refused_row(place, path, f"{why}; {error.hint}" if error.hint else why)
    except (EmmclabError, OSError) as error:
        refusal = error if isinstance(error, EmmclabError) else InputError.of(error, place)
        return refused_row(place, path, reason(refusal, str(place), path))
    if (syncs := json.loads(trace.header["activity"] or "{}").get("syncs")) is not None:
        row["fsyncs"] = sum(one["calls"] for one in syncs)
    row |= {"digest": trace.digest, "format": trace.header["format"], "trace_device": trace.header["device"]}
    numbers = {name: value for name, value in _numbers(profile) if value is not None}
    _refuse_keys(path, {*FIXED, *numbers})
    counts = {f"{HISTOGRAM}{one['name']}": one["counts"] for one in histograms}
    return row | numbers | counts


def _read(place: Path, options: Mapping[str, Any]) -> Trace:
    """Open a recording; a unit option is ignored if the format or the heading already states the unit."""
    try:
        return read(place, **options)
    except ConfigError as error:
        unit = (error.field or "").removeprefix("--").replace("-", "_")
        if options.get(unit) not in _UNITS.get(unit, ()):
            raise
        return _read(place, {name: value for name, value in options.items() if name != unit})


def refused_row(place: Path | None, path: str, reason: str) -> Row:
    """Return the row of a file that could not be profiled; without `place`, one that could not be fetched."""
    return _empty(path) | {"refused": reason, "digest": place and digest([place])}


def _empty(path: str) -> Row:
    return {"path": printable(path), "refused": None, "digest": None, "bytes": None, **metadata(path)}


def bins() -> dict[str, Bins]:
    """Describe the histograms by column: what is counted, the unit, and the upper edges of the bins."""
    return {
        f"{HISTOGRAM}{one['name']}": {"counts": one["about"], "unit": one["unit"], "upper_edges": one["edges"]}
        for one in json.loads(_core.Profiler("").histograms())
    }


def reason(error: EmmclabError, place: str, path: str) -> str:
    """Return the message without the file name, which the row contains, and without its folder."""
    return printable(str(error).removeprefix(f"{place}: ").replace(place, path))


def _refuse_keys(path: str, taken: set[str]) -> None:
    """Reject keys of folders that are already columns (`taken`, in lower case)."""
    for key in metadata(path):
        if key.lower() in taken:
            raise ConfigError(
                f"{path}: the key `{key}` of a folder is the name of a column of the table",
                file=path,
                field=key,
                hint="give the folder another key",
            )


def _numbers(profile: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every number of a profile with the name of its column."""
    yield from _flat(profile)
    for row in profile["by_operation"]:
        yield from _of_operation(row)
    for finding in profile["findings"]:
        yield f"{finding['id'].replace('-', '_')}_measured", finding["measured"]
    for figure, (names, fields) in _NAMED_ROWS.items():
        for row in profile["figures"][figure]:
            whose = "_".join(str(row[name]) for name in names)
            yield from ((f"{figure}_{whose}_{field}", row[field]) for field in fields)


def _flat(group: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in group.items():
        if name in _NO_FIGURES:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}_")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


def _of_operation(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the numbers of one operation: `read_requests`, `read_response_p99_ms`."""
    op = row["op"].replace(" ", "_")
    for name, value in row.items():
        if isinstance(value, dict):
            quantity, _, unit = name.rpartition("_")
            yield from ((f"{op}_{quantity}_{point}_{unit}", number) for point, number in value.items())
        elif not isinstance(value, list | str):
            yield f"{op}_{name}", value

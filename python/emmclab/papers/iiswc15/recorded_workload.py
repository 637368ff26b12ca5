"""Identifies which workload of the paper a recorded trace contains, by Table III or by the file name."""

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.files import printable
from emmclab.studies.input import Recordings, StandIn
from emmclab.studies.results import Results
from emmclab.traces.published import published
from emmclab.traces.reading import read, trace_name

#: The archive with the original traces, and the folder in it that contains them.
ARCHIVE, INSIDE = "Nexus5_Kernel_BIOTracer_traces.tar.gz", "WorkSpace_nexus5/Trace_files"
#: A trace matches a row of the published table if request count and data size differ by at most this percentage. The
#: last requests of a log may be missing.
_NEAR_PCT = 1.0
#: How a trace was identified, most certain first: by exact figures, by near figures, or by its name.
_EXACT, _NEAR, _NAME = range(3)
#: Abbreviations in the paper's names of combos (two applications together), and their spelling in the archive.
_SHORT = {"FB": ("Facebook",), "WB": ("WebBrowsing",), "Msg": ("Messaging", "HandOuts", "HangOuts")}
#: Minimum number of letters in a file name. Shorter names are not matched with names of workloads.
_LEAST_LETTERS = 4
#: Maximum number of left-out files that a message lists, because an archive may contain kernel sources.
_MOST_LEFT_OUT = 20


def origin(results: Results) -> str:
    """Describe the sources of the traces of a study."""
    used = results.about.get("recordings", {}).get("used", ())
    users_traces = [name for name in results.recorded if name not in {recording["input"] for recording in used}]
    text = (
        f"The original traces are public at SNIA IOTTA ({ARCHIVE}); the option --traces reads them. "
        f"{len(results.applications) + len(results.combos) - len(used)} workloads generated from the paper's "
        "published figures replace those that were not read here."
    )
    if used:
        text += f" Recorded: {', '.join(recording['workload'] for recording in used)}."
    return text + (f" Additional traces: {', '.join(users_traces)}." if users_traces else "")


@dataclass(frozen=True)
class _Match:
    file: str
    workload: str
    level: int
    how: str
    #: Absolute difference of the number of requests from the published number.
    off: int


def identified(folder: Path, reading: Mapping[str, Any]) -> Recordings:
    """Identify the traces in a folder and those below it; `reading` are options of `emmclab.read`.

    A file is identified as the workload with its number of requests and data size in Table III, exactly or within 1 %;
    else by its name. If two files match one workload, the one with the more certain identification is used.
    """
    if not folder.is_dir():
        raise ConfigError(
            "folder not found", field="--traces", hint=f"unpack {ARCHIVE} and give its folder {INSIDE}"
        ).in_file(printable(folder))
    matches: list[_Match] = []
    left_out: list[tuple[str, str]] = []
    no_traces: list[tuple[str, str]] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = printable(path.relative_to(folder))
        try:
            match = _identify(name, _figures(path, reading))
        except EmmclabError as error:
            if named(name):
                raise
            no_traces.append((name, f"not a trace: {error}"))
            continue
        if isinstance(match, str):
            left_out.append((name, match))
        else:
            matches.append(match)
    if not matches:
        raise ConfigError(
            f"no trace of the paper is in this folder ({len(left_out) + len(no_traces):,} other files)",
            field="--traces",
            hint=f"give the folder {INSIDE} of the unpacked archive; `emmclab papers tables` prints the "
            "requests and sizes of its traces",
        ).in_file(printable(folder))
    used = _most_certain(matches, left_out)
    left_out += no_traces
    more = len(left_out) - _MOST_LEFT_OUT
    if more > 0:
        left_out[_MOST_LEFT_OUT:] = [("...", f"{more:,} more files")]
    return Recordings(printable(folder), tuple(used), tuple(left_out))


def _figures(path: Path, reading: Mapping[str, Any]) -> tuple[int, float]:
    """Return the number of requests and the data size in KB of a whole trace."""
    # Options that leave out requests are ignored: the figures of the whole trace identify the workload.
    options = {key: value for key, value in reading.items() if key not in ("only", "drop_reissued")}
    profile = read(path, **options).profile()
    return int(profile["requests"]), float(profile["data_size_kb"])


def _identify(file: str, figures: tuple[int, float]) -> _Match | str:
    """Identify the workload in a file by its figures and name; if there is none, return the reason as text."""
    requests, kb = figures
    size = f"{requests:,} requests, {kb:,.0f} KB"
    rows = {row["name"]: row for row in published()["rows"]}
    for level, within in ((_EXACT, 0.0), (_NEAR, _NEAR_PCT)):
        for name, row in rows.items():
            if _has(row, "requests", requests, within) and _has(row, "data_size_kb", kb, within):
                way = "as in Table III" if level == _EXACT else f"within {_NEAR_PCT:g} % of Table III"
                if not (_matches(row["requests"], requests, within) and _matches(row["data_size_kb"], kb, within)):
                    way += ", except for contradictory figures (`emmclab papers tables`)"
                return _Match(file, name, level, f"{size}: {way}", abs(requests - row["requests"]))
    name = named(file)
    if not name:
        return f"{size}: no row of Table III within {_NEAR_PCT:g} %, and its name is not a workload of the paper"
    row = rows[name]
    return _Match(
        file,
        name,
        _NAME,
        f"by its name; {size}, published {row['requests']:,} requests, {row['data_size_kb']:,.0f} KB",
        abs(requests - row["requests"]),
    )


def _has(row: Mapping[str, Any], column: str, value: float, within_pct: float) -> bool:
    """Return whether a value is within a tolerance of the published one, or of the range that its row allows."""
    allowed = [
        (low, high)
        for entry in published()["inconsistencies"]
        if (entry["name"], entry["column"]) == (row["name"], column)
        and (low := entry["low"]) is not None
        and (high := entry["high"]) is not None
    ]
    part = within_pct / 100
    return _matches(row[column], value, within_pct) or any(
        low * (1 - part) <= round(value) <= high * (1 + part) for low, high in allowed
    )


def _matches(published_value: float, value: float, within_pct: float) -> bool:
    return abs(round(value) - published_value) <= published_value * within_pct / 100


def named(file: str) -> str:
    """Return the workload that a file name contains; empty if there is none.

    The number of the log in the file name is ignored.

    >>> [named(name) for name in ("log106_Messaging.txt", "below/log202_GoogleMap.txt", "readme.txt")]
    ['Messaging', 'GoogleMaps', '']
    """
    stem = re.sub(r"^log\d*_?", "", trace_name(file), flags=re.IGNORECASE)
    letters = _letters(stem)
    if "." in stem or len(letters) < _LEAST_LETTERS:
        return ""
    names = {key: row["name"] for row in published()["rows"] for key in _keys(row["name"])}
    if letters in names:
        return str(names[letters])
    parts = {key: name for key, name in names.items() if key.startswith(letters) or letters.startswith(key)}
    longest = [name for key, name in parts.items() if len(key) == max(map(len, parts))]
    is_one = len(set(parts.values())) == 1 or (len(longest) == 1 and letters.startswith(max(parts, key=len)))
    return longest[0] if is_one else ""


def _letters(text: str) -> str:
    return re.sub(r"[\W_\d]", "", text).casefold()


def _keys(name: str) -> set[str]:
    """Return the spellings of a workload's name: with short and full application names, in either order."""
    parts = name.split("/")
    ways = itertools.product(*((part, *_SHORT.get(part, ())) for part in parts))
    return {_letters("".join(order)) for way in ways for order in (way, way[::-1])}


def _most_certain(matches: Iterable[_Match], left_out: list[tuple[str, str]]) -> list[StandIn]:
    """Choose the most certain file of each workload, in the order of the paper; add the others to `left_out`.

    Among files that are identified by name, the most certain one has the nearest number of requests.
    """
    by_workload: dict[str, list[_Match]] = {}
    for match in matches:
        by_workload.setdefault(match.workload, []).append(match)
    used = []
    for row in published()["rows"]:
        files = sorted(by_workload.get(row["name"], []), key=_uncertainty)
        if not files:
            continue
        first, *others = files
        for other in others:
            if _uncertainty(other) == _uncertainty(first):
                raise ConfigError(
                    f"{first.file} and {other.file} are both {first.workload} ({first.how}; {other.how})",
                    field="--traces",
                    hint="leave only one of the two files in the folder",
                )
            left_out.append((other.file, f"{first.file} is a more certain match for {first.workload} ({other.how})"))
        used.append(StandIn(first.file, first.workload, first.how))
    return used


def _uncertainty(match: _Match) -> tuple[int, int]:
    return match.level, match.off if match.level == _NAME else 0

"""The kernel's counters of a disk: /proc/diskstats and /sys/block/DISK/stat, and what was written between two readings.

Fields as in Documentation/admin-guide/iostats.rst and Documentation/ABI/stable/sysfs-block of Linux: sectors are of 512
bytes in every kernel. Discards are counted since Linux 4.18, flushes since 5.5.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from emmclab.errors import ConfigError, FormatError, InputError
from emmclab.runtime.files import printable

#: Names of the counters of a disk in their order; kernels before 5.5 and 4.18 have the first 15 and 11.
_FIELDS = (
    *(
        "reads",
        "reads_merged",
        "sectors_read",
        "ms_reading",
        "writes",
        "writes_merged",
        "sectors_written",
        "ms_writing",
    ),
    *("in_flight", "ms_busy", "ms_weighted", "discards", "discards_merged", "sectors_discarded", "ms_discarding"),
    *("flushes", "ms_flushing"),
)
_LENGTHS = (11, 15, 17)
#: Counters that only grow, and whose growth is used.
_GROWING = ("reads", "sectors_read", "writes", "sectors_written", "flushes")
#: Matches partitions, and disks without flash of their own, whose writes another disk repeats or which are no flash.
_NO_DISK = re.compile(r"loop\d|ram\d|zram\d|dm-\d|md\d|sr\d|mmcblk\d+(p\d|boot|rpmb|gp)|nvme\d+n\d+p\d|[hsv]d[a-z]+\d")
_SECTOR_BYTES = 512
#: Maximum size of a file of readings, bytes.
_MOST_BYTES = 4 << 20
_TIMES = "write the time before each reading, for example `date +%s >> f; cat /proc/diskstats >> f`, or give --over 1d"

#: Counters by name; a counter that the kernel does not have is left out.
Counters = Mapping[str, int]


@dataclass(frozen=True)
class CounterReading:
    """Counters of all disks at one time.

    Attributes:
        place: file and line of the reading.
        time_s: time of the reading in s, on any clock; None if the file does not state it.
        disks: counters by name of the disk; the name is empty in /sys/block/DISK/stat, which has one disk.
    """

    place: str
    time_s: float | None
    disks: dict[str, Counters]


@dataclass(frozen=True)
class CounterGrowth:
    """What a disk did between two readings of its counters.

    Attributes:
        disk: its name; empty if the files do not state it.
        seconds: time between the readings.
        bytes_written: bytes written.
        writes: number of write requests.
        flushes: number of flushes; None if the kernel does not count them.
    """

    disk: str
    seconds: float
    bytes_written: int
    writes: int
    flushes: int | None


def holds_counters(path: Path) -> bool:
    """Return whether a file contains readings of disk counters; a file that cannot be read contains none.

    >>> holds_counters(Path("no-such-file"))
    False
    """
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(1 << 16)
    lines = [line.split() for line in head.decode("utf-8", "replace").splitlines() if line.strip() and line[0] != "#"]
    first = next((words for words in lines[:3] if _time(words) is None), None)
    return first is not None and _counters(first) is not None


def growth(paths: Sequence[Path], disk: str | None = None, over_s: float | None = None) -> CounterGrowth:
    """Return what a disk did between the first and the last reading in one or two files.

    Args:
        paths: a file with both readings, or two files with one each, the earlier first.
        disk: name of the disk; None for the only disk that was written.
        over_s: seconds between the readings; None if the files state them.

    Raises:
        ConfigError: the time is unknown, the disk is unknown or one of several, or it was not written.
        FormatError: a line is no reading, or a counter went back.
    """
    readings = [reading for path in paths for reading in _readings(path)]
    if len(readings) < 2:
        raise ConfigError(
            f"{printable(paths[0])} has one reading of the counters, and two are needed",
            file=str(paths[0]),
            hint="give a second file with a later reading, or a file with both and their times",
        )
    first, last = readings[0], readings[-1]
    seconds = over_s
    if seconds is None:
        if first.time_s is None or last.time_s is None:
            raise ConfigError(
                f"{first.place}: the time between the two readings is not known", field="--over", hint=_TIMES
            )
        seconds = last.time_s - first.time_s
    if seconds <= 0:
        raise ConfigError(
            f"{last.place}: the second reading is {-seconds:g} s before the first",
            field="--over",
            hint="give the earlier reading first, or state the time between them with --over",
        )
    name = _chosen(first, last, disk)
    before, after = first.disks[name], last.disks[name]
    grown = {field: after[field] - before[field] for field in _GROWING if field in before and field in after}
    for field, difference in grown.items():
        if difference < 0:
            raise FormatError(
                f"{last.place}: the counter `{field}`{f' of {name}' if name else ''} went back, from {before[field]:,} "
                f"to {after[field]:,}",
                kind="value",
                field=field,
                hint="counters begin at 0 when the system starts: take both readings without a restart between them, "
                "and give the earlier first",
            )
    if not grown["writes"] or not grown["sectors_written"]:
        raise ConfigError(
            f"{last.place}: nothing was written{f' to {name}' if name else ''} between the readings",
            file=str(paths[-1]),
            hint="wait longer between the readings, or name another disk with --disk",
        )
    return CounterGrowth(name, seconds, grown["sectors_written"] * _SECTOR_BYTES, grown["writes"], grown.get("flushes"))


def _readings(path: Path) -> list[CounterReading]:
    """Return the readings of a file in order; a time or a repeated name begins the next one, `#` a comment."""
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{printable(path)}: the file is too large for readings of counters", file=str(path))
    found: list[CounterReading] = []
    time_s: float | None = None
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        place = f"{printable(path)}:{number}"
        stated = _time(words)
        if stated is not None:
            time_s = stated
            found.append(CounterReading(place, time_s, {}))
            continue
        counted = _counters(words)
        if counted is None:
            raise FormatError(
                f"{place}: this is neither a line of /proc/diskstats or /sys/block/DISK/stat nor a time",
                kind="syntax",
                file=str(path),
                line=number,
                hint="a time is a line of its own: seconds (`date +%s`) or ISO 8601 (`date -Is`)",
            )
        name, counters = counted
        if not found or name in found[-1].disks:
            found.append(CounterReading(place, None, {}))
        found[-1].disks[name] = counters
    return [reading for reading in found if reading.disks]


def _time(words: Sequence[str]) -> float | None:
    """Return the time of a line with only a time: seconds, /proc/uptime, or ISO 8601."""
    if len(words) <= 2 and all(re.fullmatch(r"\d+(\.\d+)?", word) for word in words):
        return float(words[0])
    try:
        return datetime.fromisoformat(" ".join(words)).timestamp()
    except ValueError:
        return None


def _counters(words: Sequence[str]) -> tuple[str, Counters] | None:
    """Return the name of the disk (empty in its file `stat`) and its counters; None for another line."""
    name, numbers = ("", words)
    if len(words) - 3 in _LENGTHS and not words[2].isdigit():
        name, numbers = words[2], [*words[:2], *words[3:]]
    if not all(number.isdigit() for number in numbers):
        return None
    numbers = numbers[2:] if name else numbers
    if len(numbers) not in _LENGTHS:
        return None
    return name, dict(zip(_FIELDS, map(int, numbers), strict=False))


def _chosen(first: CounterReading, last: CounterReading, disk: str | None) -> str:
    """Return the name of the disk to look at: the given one, or the only one that was written."""
    names = [name for name in last.disks if name in first.disks]
    if disk is not None:
        if disk not in names and names != [""]:
            raise ConfigError(
                f"{last.place}: there is no disk `{disk}` in both readings",
                field="--disk",
                hint=f"choose one of {_listed(names)}",
            )
        return disk if disk in names else ""
    disks = [name for name in names if not _NO_DISK.match(name)] or names
    written = [name for name in disks if last.disks[name]["writes"] != first.disks[name]["writes"]] or disks
    if len(written) != 1:
        problem = (
            f"several disks were written: {_listed(written)}" if written else "the readings have no disk in common"
        )
        raise ConfigError(f"{last.place}: {problem}", field="--disk", hint="name the one of this device with --disk")
    return written[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)

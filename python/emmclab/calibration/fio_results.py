"""Figures in the results of fio: its normal text, its JSON and terse output, and its logs.

Sources: fio 2.1 and 3.33, HOWTO ("Interpreting the output", "Terse output", "JSON output", "Log File Formats"). A
result whose figures are not those of a device gets the reason as `refused`; what it does not state is left out.
"""

import json
import math
import re
import statistics
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from emmclab.errors import FormatError

#: A row of a table of figures (`measured_figures.figures_of`): the name of each column and its text.
FigureRow = dict[str, str]
_US = {"nsec": 1e-3, "usec": 1.0, "msec": 1e3, "sec": 1e6}
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_PERCENTILES = {50.0: "clat_us_p50", 99.0: "clat_us_p99", 99.9: "clat_us_p99_9"}
#: Options of a job that its figure cannot state, with what they do.
_OTHER_LOADS = {
    **dict.fromkeys(("rate", "rate_iops", "thinktime"), "limited its rate"),
    **dict.fromkeys(("fsync", "fdatasync", "sync"), "waited for durable data"),
    "unified_rw_reporting": "reports reads and writes in one figure",
}
#: I/O engines that do not reach a device.
_NO_DEVICE = {"null": "does no I/O", "cpuio": "does no I/O", "mmap": "copies from the page cache"}
#: More requests at once than this multiple of jobs and depth contradict them. fio truncates its figures and run time.
_MORE_AT_ONCE = 1.25
#: Share of requests that the disk counts at least if they bypass the page cache, and the shortest run for which the
#: counts are complete, ms: fio reads them a few times a second.
_ON_DISK, _COUNTED_MS = 0.5, 2_000


@dataclass(frozen=True)
class _JobRun:
    """The figures of one direction of a job, or of all jobs that were reported together."""

    where: str
    name: str
    #: Jobs with the same group ran at the same time.
    group: tuple[int, ...]
    op: str
    #: Pattern in the words of fio; empty if it is not stated.
    rw: str = ""
    block_bytes: int | None = None
    jobs: int | None = None
    depth: int | None = None
    requests: int = 0
    #: How long it ran, ms; 0 if it is not stated.
    run_ms: float = 0.0
    iops: float = 0.0
    mb_per_s: float = 0.0
    #: Mean time of a request, us, and the figures by metric.
    lat_us: float = 0.0
    times_us: Mapping[str, float] = field(default_factory=dict)
    engine: str = ""
    refused: str = ""

    def row(self, source: str) -> FigureRow:
        """Return the row with the figures of the run."""
        longest = max(self.lat_us, self.times_us.get("clat_us_mean", 0.0))
        at_once, stated = self.iops * longest / 1e6, (self.jobs or 0) * (self.depth or 0)
        refused = self.refused
        if not refused and stated and at_once > _MORE_AT_ONCE * stated + 0.5:
            refused = f"its IOPS and latencies mean {at_once:.0f} requests at once, more than the {stated} of its job"
        row = {"rw": self.rw} if self.rw else {"op": self.op}
        for key, value in (("jobs", self.jobs), ("depth", self.depth)):
            row |= {key: str(value)} if value else {}
        row |= {"block_kb": repr(self.block_bytes / 1024)} if self.block_bytes else {}
        row |= throughput((self.rw or self.op).startswith("rand"), self.iops, self.mb_per_s)
        row |= {metric: repr(value) for metric, value in self.times_us.items() if 0 < value < math.inf}
        row |= {"refused": refused} if refused else {}
        return row | {"condition": ", ".join(filter(None, (self.name, self.engine))), "source": source}


def throughput(is_random: bool, iops: float, mb_per_s: float) -> FigureRow:
    """Return the one of two equal figures that is usual: IOPS of random requests, MB/s (10^6 B/s) of sequential ones.

    The other one is returned if this one is missing or was printed as a whole number below 100.
    """
    figures = [("iops", iops, 100 if iops == int(min(iops, 100)) else 0), ("mb_per_s", mb_per_s, 0)]
    figures = [row for row in (figures if is_random else figures[::-1]) if 0 < row[1] < math.inf]
    return {name: repr(value) for name, value, least in sorted(figures, key=lambda row: row[1] < row[2])[:1]}


def _rows(runs: Iterable[_JobRun], source: str) -> Iterator[tuple[str, FigureRow]]:
    """Yield the place of each result in the text, and its row; equal jobs that ran at once become one row."""
    for _, found in groupby(runs, key=lambda run: run.group):
        together = list(found)
        for op in dict.fromkeys(run.op for run in together):
            same = [run for run in together if run.op == op]
            kinds = {(run.rw, run.block_bytes, run.depth) for run in together}
            if len({run.where for run in together}) == 1:
                yield same[0].where, same[0].row(source)
            elif len(kinds) == 1 and len(same) == len(together):
                yield same[0].where, _merged(same).row(source)
            else:
                others = " and ".join(sorted({run.name for run in together}))
                refused = f"jobs with other patterns, sizes or depths ran at the same time: {others}"
                yield from ((run.where, replace(run, refused=run.refused or refused).row(source)) for run in same)


def _merged(runs: Sequence[_JobRun]) -> _JobRun:
    """Return the figures of equal jobs as one; percentiles of several jobs cannot be merged."""
    longest = max(run.run_ms for run in runs)
    iops = [run.iops * (run.run_ms / longest if longest else 1.0) for run in runs]

    def mean(values: Sequence[float]) -> float:
        return sum(map(math.prod, zip(values, iops, strict=True))) / (sum(iops) or 1.0)

    kinds = [kind for kind in ("slat_us_mean", "clat_us_mean") if all(kind in run.times_us for run in runs)]
    return replace(
        runs[0], jobs=len(runs), requests=sum(run.requests for run in runs), run_ms=longest, iops=sum(iops),
        mb_per_s=sum(run.mb_per_s * (run.run_ms / longest if longest else 1.0) for run in runs),
        times_us={kind: mean([run.times_us[kind] for run in runs]) for kind in kinds},
        lat_us=mean([run.lat_us for run in runs]), refused=next((run.refused for run in runs if run.refused), ""),
    )  # fmt: skip


# Options of jobs.


def fio_commands(text: str) -> list[tuple[int, dict[str, str]]]:
    """Return the fio commands with a pattern in a text: the line of each, from 1, and its options."""
    words = r"\bfio((?:[\s\\]+--?[A-Za-z][\w-]*(?:[= ](?!-)[^\s`;&|]{1,200})?){2,60})"
    commands = [
        (text.count("\n", 0, found.start()) + 1, dict(re.findall(r"--?([A-Za-z][\w-]*)(?:[= ](?!-)(\S+))?", found[1])))
        for found in re.finditer(words, text)
    ]
    return [(line, options) for line, options in commands if "rw" in options or "readwrite" in options]


def size_of(text: str) -> int | None:
    """Return a size in the words of fio (`4k`, `64.0KiB`) in bytes; None if it is not one."""
    size = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?\s*", text.casefold())
    return round(float(size[1]) * _SIZES[size[2]]) if size else None


def _count(text: str) -> float:
    """Return a number of fio with its suffix, such as `24.0k`; 0 if it is not one."""
    number = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([kKmMgG]?)", text)
    return float(number[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[number[2].casefold()] if number else 0.0


def _of_options(options: Mapping[str, str], op: str, run: _JobRun) -> _JobRun:
    """Return a run with the job that its options state; options that are missing have the defaults of fio."""

    def option(*names: str) -> str | None:
        return next((options[name] for name in names if name in options), None)

    rw = option("rw", "readwrite") or "read"
    # A mail may contain a word that fio would not have accepted.
    rw = rw if re.fullmatch(r"(rand)?(read|write|rw|trim|trimwrite)(:.*)?|readwrite(:.*)?", rw) else ""
    stated = option("bs", "blocksize")
    sizes = ("4k" if stated is None else stated).split(",")
    block = size_of(sizes[min(op == "write", len(sizes) - 1)])
    jobs, depth = (int(_count(option(name) or "1")) or None for name in ("numjobs", "iodepth"))
    engine = option("ioengine") or ""
    split = option("bssplit", "bsrange", "blocksize_range") or ""
    cached = option("direct") in (None, "0") and option("buffered") != "0" and engine not in ("nbd", "libblkio")
    others = {name: what for name, what in _OTHER_LOADS.items() if option(name) not in (None, "0", "none")}
    causes = [f"it {what} ({name}={options[name]})" for name, what in others.items()]
    causes += [f"engine {engine} {what}" for name, what in _NO_DEVICE.items() if engine == name]
    causes += ["it went through the page cache: its options do not include direct=1"] * cached
    causes += [f"requests of several sizes ({split}) have one figure"] * bool(split)
    return replace(
        run, rw=rw, block_bytes=run.block_bytes or block, jobs=run.jobs or jobs, depth=run.depth or depth,
        engine=engine, refused=run.refused or next(iter(causes), ""),
    )  # fmt: skip


def _depth(asked: int | None, levels: Mapping[int, float]) -> tuple[int | None, str]:
    """Return the queue depth, and why it is not the one that was asked for.

    `levels` is the share of requests, in percent, by the power of two up to the number of unfinished requests.
    """
    if not any(levels.values()) or (asked == 1 and levels.get(1)):
        return asked, ""
    if levels.get(1, 0.0) >= 99.0:
        return 1, ""
    level = max((level for level in levels if level <= (asked or 0)), default=0)
    if asked is None or levels.get(level, 0.0) >= 50.0:
        return asked, ""
    usual = max(levels, key=lambda level: levels[level])
    return asked, f"it asked for a depth of {asked}, and fio counted {usual} for {levels[usual]:g} % of its requests"


def _not_on_disk(issued: Mapping[str, float], served: Mapping[str, float], run_ms: float) -> str:
    """Return why the figures are those of the page cache; empty if nothing shows it."""
    for op in ("read", "write"):
        if issued.get(op, 0) * _ON_DISK > served.get(op, math.inf) and run_ms >= _COUNTED_MS:
            return f"the disk served {served[op]:,.0f} of {issued[op]:,.0f} {op}s: the others stayed in the page cache"
    return ""


# Normal text.

_DESCRIBED = re.compile(
    r"^\s*(\S.{0,200}?): \(g=(\d{1,6})\): rw=(\w+), bs=(.{1,120}?), ioengine=(\w+), iodepth=(\d{1,6})", re.M
)
_SECTION = re.compile(r"^\s*(\S.{0,200}?): \(groupid=(\d{1,6}), jobs=\s*(\d{1,6})\): err=\s*(\d{1,6})(.{0,80})")
_DIRECTION = re.compile(r"^\s*(read|write|trim|mixed)\s*:\s*(?=IOPS=|io=)", re.M)
_RATES = re.compile(
    r"IOPS=\s*([\d.]+[kMG]?), BW=\s*([\d.]+)([KMGT]?)i?B/s.{0,60}?\(([\d.]+[KMGT]?i?B)/(\d{1,12})msec\)", re.S
)
_OLD_RATES = re.compile(
    r"io=\s*([\d.]+[KMGT]?B?), bw=\s*([\d.]+)([KMGT]?)B/s, iops=\s*([\d.]+[kM]?)\s*, runt=\s*(\d{1,12})msec"
)
_MEAN = re.compile(r"(?<![a-z])([sc]?lat)\s*\(([num]?sec)\)\s*:\s*min=.{0,60}?avg=\s*([\d.]+[kKM]?)", re.S)
_DISK = re.compile(r"^\s*[\w.-]+: ios=(\d{1,15})/(\d{1,15}), (?:sectors=[\d/]+, )?merge=(\d{1,15})/(\d{1,15})", re.M)


@dataclass
class _Section:
    """The text of the result of a job: the line of its header, from 1, and the other lines with their numbers."""

    line: int
    run: int
    header: re.Match[str] | None
    lines: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


def unquoted(text: str) -> str:
    """Return the text of a mail without the marks of quoted lines."""
    return re.sub(r"^[ \t]?(?:>[ \t]?){1,20}", "", text, flags=re.M)


def fio_text_rows(name: str, text: str) -> Iterator[tuple[str, FigureRow]]:
    """Yield the results in fio's normal text, also in a mail or with single lines of it."""
    if not re.search(r"\(groupid=\d|IOPS=\s*[\d.]+[kMG]?, BW=|clat percentiles|, runt=\s*\d", text):
        return
    # Mailers break the long lines that describe a job.
    text = re.sub(
        r"^(\S.{0,200}: \(g=\d{1,6}\): rw=(?!.*iodepth=).*)\n(?=.{0,200}\biodepth=)", r"\1 ", unquoted(text), flags=re.M
    )
    version = re.search(r"^fio-\d[\w.-]*", text, re.M)
    sections, described, disks = _sections(text)
    commands = fio_commands(text)
    runs: dict[object, _JobRun] = {}
    for number, section in enumerate(sections):
        for position, run in enumerate(_runs(name, number, section, described, commands)):
            pid = re.search(r"pid=(\d{1,9})", section.header[5]) if section.header else None
            # With --status-interval, a later report of a job contains the earlier one.
            runs[(run.name, run.group[1:], pid[1], run.op) if pid else (number, position)] = run
    for run_number, found in groupby(runs.values(), key=lambda run: run.group[0]):
        counted, served = list(found), disks.get(run_number, {})
        totals = {op: sum(run.requests for run in counted if run.op == op) for op in ("read", "write")}
        cause = _not_on_disk(totals, served, max(run.run_ms for run in counted))
        refused = [replace(run, refused=run.refused or cause) for run in counted]
        yield from _rows(refused, version[0] if version else "fio")


#: Descriptions of jobs by run and group, and requests that the disk served by run and direction.
_Described = dict[tuple[int, int], list[re.Match[str]]]
_Served = dict[int, dict[str, float]]


def _sections(text: str) -> tuple[list[_Section], _Described, _Served]:
    """Return the results of jobs, the jobs described for each run and group, and what the disk served in each run."""
    sections = [_Section(1, 0, None)]
    described: _Described = {}
    disks: _Served = {}
    run, is_over, is_reported = 0, False, False
    for number, line in enumerate(text.splitlines(), 1):
        job, section = _DESCRIBED.match(line), _SECTION.match(line)
        if (job and is_reported) or (section and is_over):
            run, is_over, is_reported = run + 1, False, False
        if job:
            described.setdefault((run, int(job[2])), []).append(job)
        elif section:
            is_reported = True
            sections.append(_Section(number, run, section))
        elif line.lstrip().startswith("Run status group"):
            is_over = True
            sections.append(_Section(number, run, None))
        elif disk := _DISK.match(line):
            served = disks.setdefault(run, {"read": 0.0, "write": 0.0})
            for at, op in enumerate(served, 1):
                served[op] = max(served[op], float(disk[at]) + float(disk[at + 2]))
        else:
            sections[-1].lines.append(line)
            sections[-1].numbers.append(number)
    return sections, described, disks


def _runs(
    name: str, number: int, section: _Section, described: _Described, commands: Sequence[tuple[int, dict[str, str]]]
) -> Iterator[_JobRun]:
    """Yield the runs of a section: one for each direction. What it does not state is that of the command before it."""
    body = "\n".join(section.lines)
    ends = [found.start() for found in re.finditer("\n", body)]

    def line_of(start: int) -> int:
        return section.numbers[bisect(ends, start)]

    def command_before(start: int) -> dict[str, str] | None:
        line = section.line if header else line_of(start)
        return next((options for at, options in reversed(commands) if at <= line), None)

    issued = re.search(r"issued\s*(?:rwts?)?\s*:\s*total=\D{0,4}([\d,/=rwdts]{1,80})", body)
    counts = [int(count) for count in re.findall(r"\d{1,15}", issued[1] if issued else "")]
    totals = dict(zip(("read", "write", "trim", "sync"), counts, strict=False))
    header, where = section.header, f"{name}: line {section.line}"
    group = (section.run, int(header[2])) if header else (section.run, -1, number)
    counted = re.findall(r"\b(\d{1,2})=(\d{1,3}(?:\.\d{1,2})?)%", body.partition("IO depths")[2].partition("\n")[0])
    depths = {int(level): float(share) for level, share in counted}
    starts = [(found.start(), found[1]) for found in _DIRECTION.finditer(body)]
    if not header and not starts and commands:
        points = [found.start() for found in re.finditer("clat percentiles", body)]
        patterns = [(at, (command_before(at) or {}).get("rw", "")) for at in points]
        starts = [(at, "write" if "write" in pattern else "read") for at, pattern in patterns if pattern]
    blank = _JobRun(where, header[1].strip() if header else "", group, "read", jobs=int(header[3]) if header else None)
    if header and int(header[4]):
        blank = replace(blank, refused=f"it ended with error {header[4]}")
    elif totals.get("sync"):
        blank = replace(blank, refused=f"it waited for durable data ({totals['sync']:,} fsync)")
    if header and not starts:
        yield replace(blank, refused=blank.refused or "it ran no requests")
    for at, (start, op) in enumerate(starts):
        end = starts[at + 1][0] if at + 1 < len(starts) else len(body)
        run = _figures_in(body[start:end], replace(blank, op=op), totals.get(op, 0))
        command = command_before(start)
        if not header:
            run = replace(run, group=(*group, at), where=f"{name}: line {line_of(start)}")
        if op == "mixed":
            run = replace(run, refused=run.refused or "it reports reads and writes in one figure")
        jobs = {job.group(3, 4, 5, 6) for job in described.get(group[:2], ())}
        if len(jobs) == 1:
            ((rw, sizes, engine, asked),) = jobs
            bounds = {size_of(size) for size in _sizes_of(sizes, op)}
            depth, refused = _depth(int(asked), depths)
            refused = f"requests of several sizes ({sizes}) have one figure" if len(bounds) > 1 else refused
            refused = f"engine {engine} {_NO_DEVICE[engine]}" if engine in _NO_DEVICE else refused
            if command and not refused and command.get("rw", command.get("readwrite")) == rw:
                refused = _of_options(command, op, run).refused
            block = min(filter(None, bounds), default=None)
            run = replace(run, rw=rw, block_bytes=block, depth=depth, engine=engine, refused=run.refused or refused)
        elif jobs:
            run = replace(run, refused=run.refused or "jobs with other patterns, sizes or depths ran at the same time")
        else:
            stated = re.search(r"latency\s*:.{0,80}\bdepth=(\d{1,6})", body)
            depth, refused = _depth(int(stated[1]) if stated else None, depths)
            block = _size_by_rates(body[start:end])
            run = replace(run, depth=depth, block_bytes=block, refused=run.refused or refused)
            run = _of_options(command, op, run) if command else run
        yield run


def _sizes_of(text: str, op: str) -> list[str]:
    """Return the least and the largest size of an operation in the words of fio 3 (`(R) 4096B-4096B`) or fio 2."""
    of = re.search(rf"\({op[0].upper()}\)\s*([\w.]+)-([\w.]+)", text)
    if of:
        return [of[1], of[2]]
    ranges = text.split("/")
    return ranges[min(op == "write", len(ranges) - 1)].split("-")


def _size_by_rates(text: str) -> int | None:
    """Return the power of two that IOPS and bandwidth allow as the size of requests; None if there is not one."""
    rates = _RATES.search(text)
    if not rates or not (iops := _count(rates[1])):
        return None
    digits = 10.0 ** -len(rates[2].partition(".")[2]) if rates[2].count(".") < 2 else 0.0
    bandwidth, unit = _count(rates[2]), _SIZES[rates[3].casefold()]
    step = 1.0 if rates[1].isdecimal() else iops / 100
    least, most = ((bandwidth - digits) * unit / (iops + step), (bandwidth + digits) * unit / iops)
    sizes = [1 << power for power in range(9, 31) if least <= 1 << power <= most]
    return sizes[0] if len(sizes) == 1 else None


def _figures_in(text: str, run: _JobRun, requests: int) -> _JobRun:
    """Return a run with the figures of the text of its direction."""
    iops = mb_per_s = run_ms = 0.0
    if rates := _RATES.search(text):
        iops, mb_per_s, run_ms = _count(rates[1]), _count(rates[2]) * _SIZES[rates[3].casefold()] / 1e6, float(rates[5])
    elif rates := _OLD_RATES.search(text):
        iops, mb_per_s, run_ms = _count(rates[4]), _count(rates[2]) * _SIZES[rates[3].casefold()] / 1e6, float(rates[5])
    elif mean := re.search(r"iops\s*: min=.{0,60}?avg=\s*([\d.]+)", text, re.S):
        iops = _count(mean[1])
    if iops < 100 and requests and run_ms:
        iops = requests / run_ms * 1e3
    times = {kind: _count(mean) * _US[unit] for kind, unit, mean in _MEAN.findall(text)}
    figures = {f"{kind}_us_mean": time for kind, time in times.items() if kind != "lat"}
    points = text.partition("clat percentiles")[2].partition("lat percentiles")[0][:4_000]
    if unit := re.match(r" \(([num]sec)\)\s*:", points):
        for point, time in re.findall(r"([\d.]{1,10})th=\[\s*(\d{1,12})\s*\]", points):
            if (metric := _PERCENTILES.get(_count(point))) is not None:
                figures[metric] = float(time) * _US[unit[1]]
    return replace(
        run, requests=requests, run_ms=run_ms, iops=iops, mb_per_s=mb_per_s, times_us=figures,
        lat_us=times.get("lat", times.get("clat", 0.0)),
        refused=run.refused or ("" if iops or mb_per_s or figures else "it has no figures"),
    )  # fmt: skip


# JSON.


class _Latency(msgspec.Struct):
    mean: float = 0.0
    percentile: dict[str, float] = {}


class _Side(msgspec.Struct):
    """The results of a direction: of fio 3 in bytes and ns, of fio 2 in KB and us."""

    total_ios: int = 0
    io_bytes: float = 0.0
    bw: float = 0.0
    iops: float = 0.0
    runtime: float = 0.0
    slat_ns: _Latency | None = None
    clat_ns: _Latency | None = None
    lat_ns: _Latency | None = None
    slat: _Latency | None = None
    clat: _Latency | None = None
    lat: _Latency | None = None


class _Entry(msgspec.Struct):
    jobname: str = ""
    groupid: int = 0
    error: int = 0
    total_err: int = 0
    options: dict[str, Any] | None = msgspec.field(name="job options", default=None)
    read: _Side = msgspec.field(default_factory=_Side)
    write: _Side = msgspec.field(default_factory=_Side)
    trim: _Side = msgspec.field(default_factory=_Side)
    mixed: _Side = msgspec.field(default_factory=_Side)
    iodepth_level: dict[str, float] = {}


class _Disk(msgspec.Struct):
    read_ios: int = 0
    write_ios: int = 0
    read_merges: int = 0
    write_merges: int = 0


class _Results(msgspec.Struct):
    jobs: list[_Entry]
    version: str = msgspec.field(name="fio version", default="fio")
    shared: dict[str, Any] = msgspec.field(name="global options", default_factory=dict)
    disk_util: list[_Disk] = []


def fio_json_rows(name: str, text: str) -> Iterator[tuple[str, FigureRow]]:
    """Yield the results in fio's JSON, with text before and after it.

    Errors: FormatError for JSON that ends early or is not that of fio.
    """
    at, results = 0, {}
    while begin := re.compile(r'\{\s*"(?:fio version|jobs)"').search(text, at):
        try:
            value, at = json.JSONDecoder().raw_decode(text, begin.start())
            result = msgspec.convert(value, _Results)
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            line = text.count("\n", 0, begin.start()) + 1
            raise FormatError(
                f"{name}: line {line}: not the JSON of fio: {error}", hint="run fio with --output-format=json"
            ) from None
        # With --status-interval, a later result of the same jobs contains the earlier one.
        results[tuple((entry.jobname, entry.groupid) for entry in result.jobs)] = result
    for number, result in enumerate(results.values()):
        runs = list(_json_runs(name, number, result))
        issued = {op: sum(run.requests for run in runs if run.op == op) for op in ("read", "write")}
        served = {
            "read": max((disk.read_ios + disk.read_merges for disk in result.disk_util), default=math.inf),
            "write": max((disk.write_ios + disk.write_merges for disk in result.disk_util), default=math.inf),
        }
        cause = _not_on_disk(issued, served, max((run.run_ms for run in runs), default=0.0))
        yield from _rows([replace(run, refused=run.refused or cause) for run in runs], result.version)


def _json_runs(name: str, number: int, result: _Results) -> Iterator[_JobRun]:
    is_old = result.version.startswith(("fio-1.", "fio-2."))
    for entry, job in enumerate(result.jobs):
        where = f"{name}: job `{job.jobname}` (entry {entry + 1})"
        run = _JobRun(where, job.jobname, (number, job.groupid), "read")
        options = {key: str(value) for key, value in {**result.shared, **(job.options or {})}.items()}
        if job.error or job.total_err:
            failed = f"{job.total_err:,} of its requests failed"
            run = replace(run, refused=f"it ended with error {job.error}" if job.error else failed)
        sides = [("read", job.read), ("write", job.write), ("trim", job.trim), ("mixed", job.mixed)]
        if not any(side.total_ios for _, side in sides):
            run = replace(run, refused=run.refused or "it ran no requests")
            yield _of_options(options, "read", run) if options else run
        shares = {level.strip(">="): share for level, share in job.iodepth_level.items()}
        levels = {level: shares.get(str(level), 0.0) for level in (1, 2, 4, 8, 16, 32, 64)}
        for op, side in sides:
            if side.total_ios <= 0:
                continue
            found = _of_side(side, is_old, replace(run, op=op))
            if op == "mixed":
                found = replace(found, refused=run.refused or "it reports reads and writes in one figure")
            if options:
                found = _of_options(options, op, found)
            depth, refused = _depth(found.depth, levels)
            yield replace(found, depth=depth, refused=found.refused or refused)


def _of_side(side: _Side, is_old: bool, run: _JobRun) -> _JobRun:
    """Return a run with the figures of its direction."""
    us = 1.0 if is_old else 1e-3
    kinds = {"slat": side.slat_ns or side.slat, "clat": side.clat_ns or side.clat, "lat": side.lat_ns or side.lat}
    times = {kind: latency.mean * us for kind, latency in kinds.items() if latency}
    figures = {f"{kind}_us_mean": time for kind, time in times.items() if kind != "lat"}
    for point, time in (kinds["clat"].percentile if kinds["clat"] else {}).items():
        if (metric := _PERCENTILES.get(_count(point))) is not None:
            figures[metric] = time * us
    size = side.io_bytes * (1024 if is_old else 1) / side.total_ios
    # The bytes of fio 2 are whole KB, and a job may end within its last request.
    whole = round(size / 512) * 512 if math.isfinite(size) else 0
    is_mixed = abs(size - whole) * side.total_ios > max(whole, 1024)
    mixed = f"requests of several sizes ({size:,.0f} bytes on average) have one figure" if is_mixed else ""
    return replace(
        run, requests=side.total_ios, run_ms=side.runtime, iops=side.iops, mb_per_s=side.bw * 1024 / 1e6,
        times_us=figures,
        block_bytes=None if is_mixed else whole or None, lat_us=times.get("lat", times.get("clat", 0.0)),
        refused=run.refused or mixed,
    )  # fmt: skip


# Terse output and logs.


def fio_terse_rows(name: str, text: str) -> Iterator[tuple[str, FigureRow]]:
    """Yield the results in fio's terse output, versions 3 and 4. It states no pattern, no jobs and no depth above 1."""
    runs = []
    for number, line in enumerate(text.splitlines() if "(groupid=" not in text else (), 1):
        values = line.strip().split(";")
        if not re.match(r"[34];fio-\d", line.strip()) or len(values) < 99:
            continue
        where, refused = f"{name}: line {number}", ""
        if values[4] not in ("", "0"):
            refused = f"it ended with error {values[4]}"
        for op, at in (("read", 5), ("write", 46)):
            numbers = [_count(value) for value in values[at : at + 36]]
            kb, bandwidth, iops, run_ms = numbers[:4]
            if not run_ms or not kb:
                continue
            points = dict(value.split("%=") for value in values[at + 12 : at + 29] if value.count("%=") == 1)
            times = {"slat_us_mean": numbers[6], "clat_us_mean": numbers[10]}
            times |= {
                _PERCENTILES[_count(point)]: _count(at) for point, at in points.items() if _count(point) in _PERCENTILES
            }
            sizes = [
                1 << power for power in range(9, 31) if abs(iops * (1 << power) / (kb * 1024e3 / run_ms) - 1) < 0.02
            ]
            depth = 1 if values[92].startswith("100") else None
            run = _JobRun(where, values[2], (number,), op, depth=depth, iops=iops, refused=refused, times_us=times)
            block = sizes[0] if sizes else None
            runs.append(replace(run, block_bytes=block, mb_per_s=bandwidth * 1024 / 1e6, lat_us=numbers[34]))
    yield from _rows(runs, "fio")


_LOG_LINE = re.compile(r"(\d{1,15}), *(\d{1,18}), *([0-2]), *(\d{1,12})(?:, *\w+)*\s*")


def is_fio_log(text: str) -> bool:
    """Return whether a text is a log of fio (`write_lat_log`, `write_bw_log`, `write_iops_log`)."""
    return bool(_LOG_LINE.fullmatch(text.lstrip().partition("\n")[0]))


def fio_log_rows(path: Path, text: str, job_file: str | None) -> Iterator[tuple[str, FigureRow]]:
    """Yield the figures of a log of fio. A log states sizes only; `job_file` is the text of the job file that ran.

    The end of the name of the file (`_clat.1.log`) states what its values are.
    Errors: FormatError for another name and for a line that is not one of a log.
    """
    kind = re.search(r"(.*?)_(slat|clat|lat|bw|iops)(?:\.(\d{1,5}))?\.log", path.name)
    if not kind:
        raise FormatError(
            f"{path}: a log of fio, and its name does not say of what",
            hint="give it the name that fio gave it, such as NAME_clat.1.log",
        )
    values: dict[tuple[str, int], list[int]] = {}
    fields = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        entry = _LOG_LINE.fullmatch(line.strip())
        if not entry:
            raise FormatError(
                f"{path}: line {number}: `{line[:80]}` is not a line of fio's log", hint="correct the line"
            )
        values.setdefault((("read", "write", "trim")[int(entry[3])], int(entry[4])), []).append(int(entry[2]))
        fields = max(fields, line.count(",") + 1)
    job = _job_of_log(job_file, kind[1], int(kind[3] or 1)) if job_file else None
    for (op, block_bytes), found in values.items():
        run = _JobRun(str(path), path.name, (0,), op, block_bytes=block_bytes or None)
        mean, is_each = statistics.fmean(found), block_bytes > 0
        if kind[2] in ("bw", "iops"):
            run = replace(run, mb_per_s=mean * 1024 / 1e6) if kind[2] == "bw" else replace(run, iops=mean)
            if is_each:
                run = replace(run, refused="it has a value for each request: run fio with log_avg_msec")
        else:
            times = {f"{kind[2]}_us_mean": mean / 1e3}
            refused = "" if fields > 4 else "its times are ns with fio 3 and us with fio 2, and it does not say which"
            refused = "times from submission on (lat) are no figure: give the clat log" if kind[2] == "lat" else refused
            if is_each and kind[2] == "clat" and len(found) > 1:
                cuts = statistics.quantiles(found, n=1000, method="inclusive")
                times |= {metric: cuts[round(point * 10) - 1] / 1e3 for point, metric in _PERCENTILES.items()}
            run = replace(run, times_us=times, refused=refused)
        if len(values) > 1:
            run = replace(run, refused=run.refused or "requests of several sizes or directions ran at the same time")
        if job:
            run = _of_options(job, op, run)
            if kind[2] in ("bw", "iops") and (run.jobs or 1) > 1:
                run = replace(run, refused=run.refused or f"it is the share of one of {run.jobs} jobs")
        yield str(path), run.row("fio")


def is_job_file(text: str) -> bool:
    """Return whether a text is a job file of fio."""
    options = r"^\s*(?:rw|readwrite|bs|ioengine|iodepth)\s*="
    return bool(re.search(r"^\s*\[[^\]\n]+\]", text, re.M) and re.search(options, text, re.M))


def _job_of_log(text: str, name: str, number: int) -> Mapping[str, str] | None:
    """Return the options of the job that wrote a log: by the name that it gave to logs, otherwise by its number."""
    shared: dict[str, str] = {}
    jobs: list[dict[str, str]] = []
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if section := re.match(r"\s*\[([^\]]+)\]", line):
            if section[1] != "global":
                jobs.append({**shared, "name": section[1]})
        elif key.strip() and not line.lstrip().startswith(("#", ";")):
            (jobs[-1] if jobs else shared)[key.strip()] = value.strip()
    names = ("name", "write_lat_log", "write_bw_log", "write_iops_log")
    named = [job for job in jobs if name in (job.get(key) for key in names)]
    copies = [job for job in jobs for _ in range(int(_count(job.get("numjobs", "1")[:4])))]
    return named[0] if len(named) == 1 else copies[number - 1] if 0 < number <= len(copies) else None

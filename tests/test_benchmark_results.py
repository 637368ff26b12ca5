"""Reading what benchmarks print: fio, iozone, AndroBench, Mobibench, CrystalDiskMark and tables of boards."""

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from conftest import ROOT, cases, missing
from emmclab.calibration.benchmark_results import read_benchmark
from emmclab.calibration.measured_figures import FigureJob, MeasuredFigure
from emmclab.errors import EmmclabError

BS = "bs=(R) 64.0KiB-64.0KiB, (W) 64.0KiB-64.0KiB, (T) 64.0KiB-64.0KiB"
NOT_STATED = "its source does not state: "
DESCRIBED = f"seq: (g=0): rw=read, {BS}, ioengine=libaio, iodepth=8\n"
SECTION = """
seq: (groupid=0, jobs=1): err= 0: pid=77: Mon Jan  1 00:00:00 2024
  read: IOPS=1600, BW=100MiB/s (105MB/s)(1000MiB/10000msec)
    slat (usec): min=2, max=90, avg=11.50, stdev=1.00
    clat (msec): min=1, max=30, avg= 4.89, stdev=1.00
     lat (msec): min=1, max=30, avg= 4.90, stdev=1.00
    clat percentiles (usec):
     |  1.00th=[ 1000], 50.00th=[ 4800], 99.00th=[ 9500],
     | 99.90th=[21000]
  IO depths    : 1=0.1%, 2=0.1%, 4=0.1%, 8=99.9%, 16=0.0%, 32=0.0%, >=64=0.0%
     issued rwts: total=16000,0,0,0 short=0,0,0,0 dropped=0,0,0,0
"""
NORMAL = f"{DESCRIBED}fio-3.33\nStarting 1 process\n{SECTION}\nRun status group 0 (all jobs):\n"
SYNCED = SECTION.replace("=16000,0,0,0 ", "=16000,0,0,7 ")
TWO = DESCRIBED + SECTION + SECTION.replace("pid=77", "pid=78").replace("avg= 4.89", "avg= 2.89")
FIO_2 = """rnd: (g=0): rw=randwrite, bs=4K-4K/4K-4K/4K-4K, ioengine=libaio, iodepth=4
...
fio-2.1.11
rnd: (groupid=0, jobs=2): err= 0: pid=5: Mon Jan  1 00:00:00 2014
  write: io=40960KB, bw=4096.0KB/s, iops=1024, runt= 10000msec
    clat (usec): min=50, max=20.5K, avg=7800.25, stdev=10.00
    clat percentiles (usec):
     |  1.00th=[  99], 50.00th=[ 7000], 99.00th=[ 9000], 99.90th=[12000]
  IO depths    : 1=0.1%, 2=0.1%, 4=99.8%, 8=0.0%, 16=0.0%, 32=0.0%, >=64=0.0%
     issued    : total=r=0/w=10240/d=0, short=r=0/w=0/d=0, drop=r=0/w=0/d=0
"""
LINES = """$ fio --name=x --rw=randread --direct=1 --bs=$((1<<i)) --ioengine=psync
> > read: IOPS=3000, BW=11.7MiB/s (12.3MB/s)(352MiB/30001msec)
"""
OPTIONS = {"rw": "randread", "bs": "4k", "direct": "1", "ioengine": "libaio", "iodepth": "8"}
SIDE = {"total_ios": 1000, "io_bytes": 4096000, "bw": 4000, "iops": 1000.0, "runtime": 1000, "clat_ns": {"mean": 7.5e6}}
MOBIBENCH = """[mobibench measurement setup]
IO size : 4 KB
Access Mode 3, Sync Mode 3
# of Threads : 2
00%01%
[TIME] :      2 sec 1us.  8192000 B/sec,  8000.00 KB/sec,  7.81 MB/sec. 2000.00 IOPS(4KB)
Err string : No error
"""
CRYSTAL = """CrystalDiskMark 8.0.4 x64
* MB/s = 1,000,000 bytes/s
[Read]
  SEQ    1MiB (Q=  8, T= 1):   184.100 MB/s [    175.6 IOPS] < 45000.00 us>
[Write]
  RND    4KiB (Q= 32, T= 2):     9.830 MB/s [   2399.9 IOPS] <   400.00 us>
"""
CRYSTAL_3 = "CrystalDiskMark 3.0\n Sequential Read :  90.1 MB/s\n Random Write 4KB (QD=32) :  1.5 MB/s [ 366.2 IOPS]\n"
IOZONE = """	Command line used: ./iozone -e -I -a -s 100M -r 4k -i 0 -i 2
	Output is in kBytes/sec
                                                              random    random     bkwd
              kB  reclen    write  rewrite    read    reread    read     write     read
          102400       4     2048     2100                       8000     4000
"""
PROCESSES = """Record Size 4 kB
	Command line used: iozone -I -O -t 4
	Children see throughput for  4 random readers 	=    5000.00 ops/sec
"""
ANDROBENCH = """AndroBench (64 MB files, 8 threads)
Sequential: 32768KB, Random: 4KB
            | without   | with
Sequential read     200.5 MB/s   210.0 MB/s
Random write        1500.5 iops  1600.0 iops
"""
TABLE = """fio Disk Speed Tests:
Block Size | 4k            (IOPS) | 1m (IOPS)
Read       | 83.00 MB/s (20.7k) | 300.00 MB/s (292)
Randwrite  | 8.00 MB/s (2000) | 99.00 MB/s (96)
"""
CARDS = "| | [Card A](http://x) | B |\n|--:|:-:|:-:|\n| 4k read IOPS | 1900 | 2100 |\n| write MB/s | 10 | - |\n"

READ, QUEUED, PATTERN = "read 64 KB, depth 8", "randread 4 KB, depth 8", "is not one of the patterns"
FIGURES = {"mb_per_s": 104.8576, "slat_us_mean": 11.5, "clat_us_mean": 4890.0}
FIGURES |= {"clat_us_p50": 4800.0, "clat_us_p99": 9500.0, "clat_us_p99_9": 21000.0}
OF_FIO_2 = {"iops": 1024.0, "clat_us_mean": 7800.25, "clat_us_p99": 9000.0}
WRAPPED = NORMAL.replace(", (W)", ",\n(W)", 1).replace("99.00th=[ ", "99.00th=[\n")
HALF = NORMAL.replace("BW=100MiB", "BW=50MiB")
ONE_BY_ONE = NORMAL.replace("1=0.1%", "1=100.0%").replace("avg= 4.90", "avg= 0.60").replace("avg= 4.89", "avg= 0.59")
SHALLOW = NORMAL.replace("8=99.9", "8=1.9").replace("4=0.1", "4=98.0")
BESIDE = NORMAL.replace("fio-3", DESCRIBED.replace("rw=read", "rw=write") + "fio-3")
CACHED = NORMAL + "  sda: ios=900/0, merge=100/0, ticks=1/1\n"
NOTHING = DESCRIBED + "x: (groupid=0, jobs=1): err= 0: pid=1: now\n"
UNCACHED, LOST = MOBIBENCH.replace("Sync Mode 3", "Sync Mode 0"), MOBIBENCH.replace("No error", "Out of memory")
YABS = TABLE.replace("Tests:", "Tests (Mixed R/W 50/50):")
STORED = NORMAL.replace("=", "=3D").replace(", 99.00th", ",=\n 99.00th")
UNDESCRIBED = (
    "# fio --rw=read --bs=64k --direct=1 --iodepth=4\n" + SECTION + "     latency   : target=0, window=0, depth=8\n"
)
ROWS = "Card X\n| Block Size (KB) | Random Read (MB/s) |\n|---|---|\n| 16 | 44.93 |\n"
CSV = "rw,bs_kb,jobs,depth,iops\nrandread,4,1,8,900\n"
#: Text, the job of its first figure (None: not stated), some figures, and a part of why they are refused.
SAMPLES: dict[str, tuple[str, str | None, dict[str, float | None], str]] = {
    "normal": (NORMAL, READ, FIGURES, ""),
    "quoted": ("".join(f"> > {line}\n" for line in NORMAL.splitlines()), READ, FIGURES, ""),
    "wrapped": (WRAPPED, READ, FIGURES, ""),
    "stored mail": (STORED, READ, FIGURES, ""),
    "undescribed": (UNDESCRIBED, READ, FIGURES, ""),
    "one figure": (NORMAL.replace(" read:", "mixed:"), READ, {}, "reads and writes in one figure"),
    "two jobs": (TWO, "read 64 KB, 2 x 8", {"mb_per_s": 209.7152, "clat_us_mean": 3890.0}, ""),
    "later report": (HALF + NORMAL, READ, FIGURES, ""),
    "fio 2": (FIO_2, "randwrite 4 KB, 2 x 4", OF_FIO_2, ""),
    "lines": (LINES, "randread 4 KB, depth 1", {"iops": 3000.0}, ""),
    "lines of two commands": (NORMAL + LINES.replace("randread", "read") + LINES, READ, {"iops": 3000.0}, ""),
    "lines of no pattern": (LINES.replace("=randread", "=random"), None, {"mb_per_s": 12.268339}, "not state: pattern"),
    "lines alone": (LINES.partition("\n")[2], None, {"mb_per_s": 12.268339}, "pattern, number of jobs, queue depth"),
    "engine without a queue": (ONE_BY_ONE, "read 64 KB, depth 1", {}, ""),
    "shallower": (SHALLOW, READ, {}, "asked for a depth of 8, and fio counted 4"),
    "more at once": (NORMAL.replace("=1600,", "=9600,"), READ, {}, "47 requests at once, more than the 8"),
    "absurd": (NORMAL.replace("clat (msec)", "clat (sec)"), READ, {}, "7824 requests at once, more than the 8"),
    "synced": (DESCRIBED + SYNCED, READ, {}, "waited for durable data (7 fsync)"),
    "failed": (NORMAL.replace("err= 0", "err= 5"), READ, {}, "ended with error 5"),
    "nothing": (NOTHING, None, {"iops": None}, "ran no requests"),
    "sizes": (NORMAL.replace("(R) 64.0KiB", "(R) 4096B"), "read 4 KB, depth 8", {}, "several sizes"),
    "cached": (CACHED, READ, {}, "served 1,000 of 16,000 reads"),
    "cached by command": ("$ fio --rw=read --bs=64k x\n" + NORMAL, READ, {}, "direct=1"),
    "beside another": (BESIDE, None, {}, "at the same time"),
    "mixed": (NORMAL.replace("rw=read", "rw=randrw"), None, {"iops": 1600.0}, PATTERN),
    "mobibench": (MOBIBENCH, "randread 4 KB, 2 x 1", {"iops": 2000.0}, ""),
    "mobibench cached": (UNCACHED, "randread 4 KB, 2 x 1", {}, "page cache (sync mode 0)"),
    "mobibench failed": (LOST, "randread 4 KB, 2 x 1", {}, "Out of memory"),
    "crystal": (CRYSTAL, "read 1024 KB, depth 8", {"mb_per_s": 184.1}, ""),
    "crystal 3": (CRYSTAL_3, None, {"mb_per_s": 90.1}, "request size, number of jobs, queue depth"),
    "iozone": (IOZONE, "write 4 KB, depth 1", {"mb_per_s": 2.097152}, ""),
    "iozone cached": (IOZONE.replace("-I ", ""), "write 4 KB, depth 1", {}, "iozone without -I"),
    "iozone processes": (PROCESSES, "randread 4 KB, 4 x 1", {"iops": 5000.0}, ""),
    "androbench": (ANDROBENCH, None, {"mb_per_s": 200.5}, "its source does not state: queue depth"),
    "board": (TABLE, None, {"mb_per_s": 84.992}, "number of jobs, queue depth"),
    "rows by size": (ROWS, None, {"mb_per_s": 44.93}, "number of jobs, queue depth"),
    "yabs": (YABS, None, {}, "reads and writes ran at the same time"),
    "cards": (CARDS, None, {"iops": 1900.0}, "pattern, number of jobs, queue depth"),
    "table": (CSV, QUEUED, {"iops": 900.0}, ""),
}


def _read(folder: Path, text: str | bytes, name: str = "result.txt", **assume: str) -> list[MeasuredFigure]:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_benchmark(path, assume=assume)


def _fio_json(*jobs: dict[str, object], **shared: str) -> str:
    entries = [
        {"jobname": f"job{at}", "groupid": 0, "job options": OPTIONS, "read": SIDE} | job for at, job in enumerate(jobs)
    ]
    return json.dumps({"fio version": "fio-3.33", "global options": shared, "jobs": entries}, indent=1)


@pytest.mark.parametrize("name", SAMPLES)
def test_each_form_gives_its_job_and_figures_and_says_what_is_missing(tmp_path: Path, name: str) -> None:
    text, job, figures, refused = SAMPLES[name]
    found = _read(tmp_path, text)
    first = found[0]
    assert (str(first.job) if first.job else None) == job
    assert refused in first.refused and bool(refused) == bool(first.refused), first.refused
    values = {row.metric: row.value for row in reversed(found) if row.job == first.job or name.startswith("lines of")}
    assert {metric: values.get(metric) for metric in figures} == pytest.approx(figures)


@pytest.mark.parametrize("name", ["crystal", "iozone", "androbench", "board", "cards"])
def test_a_table_gives_a_figure_for_each_cell(tmp_path: Path, name: str) -> None:
    found = _read(tmp_path, SAMPLES[name][0], pattern="random", jobs="1", depth="2")
    rows = [(row.device, str(row.job), row.metric, round(row.value, 2), row.condition) for row in found]
    assert rows == {
        "crystal": [
            ("device", "read 1024 KB, depth 8", "mb_per_s", 184.1, ""),
            ("device", "randwrite 4 KB, 2 x 32", "iops", 2399.9, ""),
        ],
        "iozone": [
            ("device", "write 4 KB, depth 1", "mb_per_s", 2.1, ""),
            ("device", "write 4 KB, depth 1", "mb_per_s", 2.15, "rewrite"),
            ("device", "randread 4 KB, depth 1", "iops", 2000.0, ""),
            ("device", "randwrite 4 KB, depth 1", "iops", 1000.0, ""),
        ],
        "androbench": [
            ("device", "read 32768 KB, 8 x 2", "mb_per_s", 200.5, "without"),
            ("device", "read 32768 KB, 8 x 2", "mb_per_s", 210.0, "with"),
            ("device", "randwrite 4 KB, 8 x 2", "iops", 1500.5, "without"),
            ("device", "randwrite 4 KB, 8 x 2", "iops", 1600.0, "with"),
        ],
        "board": [
            ("device", "read 4 KB, depth 2", "mb_per_s", 84.99, ""),
            ("device", "read 1024 KB, depth 2", "mb_per_s", 307.2, ""),
            ("device", "randwrite 4 KB, depth 2", "iops", 2000.0, ""),
            ("device", "randwrite 1024 KB, depth 2", "mb_per_s", 101.38, ""),
        ],
        "cards": [
            ("Card A", "randread 4 KB, depth 2", "iops", 1900.0, ""),
            ("B", "randread 4 KB, depth 2", "iops", 2100.0, ""),
            ("Card A", "None", "mb_per_s", 10.0, ""),
        ],
    }[name]  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "job", "refused"),
    [
        ([{}], QUEUED, ""),
        ([{"job options": OPTIONS | {"numjobs": "4"}}], "randread 4 KB, 4 x 8", ""),
        ([{}, {}], "randread 4 KB, 2 x 8", ""),
        ([{}, {"job options": OPTIONS | {"bs": "8k"}, "read": SIDE | {"io_bytes": 8192000}}], QUEUED, "other patterns"),
        ([{}, {"groupid": 1}], QUEUED, ""),
        ([{"iodepth_level": {"1": 100.0}, "read": SIDE | {"iops": 130.0}}], "randread 4 KB, depth 1", ""),
        ([{"iodepth_level": {"2": 99.0, "8": 1.0}}], QUEUED, "fio counted 2"),
        (
            [{"job options": OPTIONS | {"iodepth": "4"}}],
            "randread 4 KB, depth 4",
            "8 requests at once, more than the 4",
        ),
        ([{"job options": {"rw": "randread"}}], "randread 4 KB, depth 1", "direct=1"),
        ([{"job options": OPTIONS | {"bssplit": "4k/50:8k/50"}}], QUEUED, "several sizes (4k/50"),
        ([{"read": SIDE | {"io_bytes": 6001152}}], QUEUED, "several sizes (6,001 bytes on average)"),
        ([{"job options": OPTIONS | {"rate_iops": "1000"}}], QUEUED, "rate_iops=1000"),
        ([{"job options": OPTIONS | {"ioengine": "null"}}], QUEUED, "null does no I/O"),
        ([{"error": 5}], QUEUED, "error 5"),
        ([{"read": {}}], QUEUED, "ran no requests"),
        ([{"job options": {}}], None, "pattern, number of jobs, queue depth"),
    ],
)
def test_json_of_fio_states_depth_and_jobs_and_the_cause_of_a_refusal(
    tmp_path: Path, jobs: list[dict[str, object]], job: str | None, refused: str
) -> None:
    first = _read(tmp_path, "note: before {\n" + _fio_json(*jobs) + "\nafter")[0]
    assert (str(first.job) if first.job else None) == job
    assert refused in first.refused and bool(refused) == bool(first.refused), first.refused
    assert (first.value is None) == ("no requests" in refused)


def test_json_of_fio_2_is_in_its_own_units(tmp_path: Path) -> None:
    side = SIDE | {"io_bytes": 4000, "clat": {"mean": 7500.0, "percentile": {"99.000000": 9000}}}
    del side["clat_ns"]
    found = _read(tmp_path, _fio_json({"read": side}).replace("fio-3.33", "fio-2.21"))
    assert [(str(row.job), row.metric, row.value) for row in found] == [
        ("randread 4 KB, depth 8", "iops", 1000.0),
        ("randread 4 KB, depth 8", "clat_us_mean", 7500.0),
        ("randread 4 KB, depth 8", "clat_us_p99", 9000.0),
    ]


def test_a_log_of_fio_needs_its_job(tmp_path: Path) -> None:
    lines = "".join(f"{at}, {50_000 + at * 100}, 0, 4096, 0\n" for at in range(101))
    log, job = tmp_path / "x_clat.2.log", tmp_path / "job.fio"
    log.write_text(lines)
    job.write_text("[global]\ndirect=1\nioengine=libaio\n[a]\nrw=write\n[b]\nrw=randread\niodepth=4\nnumjobs=2\n")
    assert {row.refused for row in read_benchmark(log)} == {f"{NOT_STATED}pattern, number of jobs, queue depth"}
    found = {row.metric: (str(row.job), row.value, row.refused) for row in read_benchmark(log, job)}
    assert found["clat_us_mean"] == ("randread 4 KB, 2 x 4", 55.0, "") and found["clat_us_p50"][1] == 55.0
    assert found["clat_us_p99"][1] == pytest.approx(59.9)
    old = _read(tmp_path, lines.replace(", 0\n", "\n"), "y_slat.1.log")
    assert "ns with fio 3 and us with fio 2" in old[0].refused
    assert "log_avg_msec" in _read(tmp_path, lines, "x_bw.1.log")[0].refused
    assumed = {"pattern": "random", "jobs": "1", "depth": "8", "block_kb": "4"}
    averaged = _read(tmp_path, "1000, 2000, 0, 0, 0\n2000, 4000, 0, 0, 0\n", "x_iops.1.log", **assumed)
    assert (str(averaged[0].job), averaged[0].value, averaged[0].refused) == (QUEUED, 3000.0, "")
    for paths in ([job], [log, job, job.rename(tmp_path / "b.fio")]):
        with pytest.raises(EmmclabError):
            read_benchmark(*paths)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\0\0\0", "the file is empty"),
        (b"hello\n", "not the result of a benchmark"),
        (b"a,b,c\n1,2,3\n", "not the result of a benchmark"),
        (b'{"fio version": "fio-3.33", "jobs": [', "line 1: not the JSON of fio"),
        (b'{"fio version": "fio-3.33", "jobs": ' + b"[" * 100_000, "not the JSON of fio"),
        (b'{"fio version": "fio-3.33", "jobs": [{"error": "x"}]}', r"`int`, got `str` - at `\$.jobs\[0\].error`"),
        (b"1, 2, 0, 4096, 0\n", "its name does not say of what"),
        (IOZONE.replace("   2048     2100                       8000", "2048 2100 8000").encode(), "under no column"),
    ],
)
def test_what_is_not_a_result_is_an_error_with_its_cause(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(EmmclabError, match=message):
        _read(tmp_path, content)


def test_a_huge_file_and_a_missing_one_are_errors(tmp_path: Path) -> None:
    huge = tmp_path / "huge.txt"
    with huge.open("wb") as file:
        file.truncate(8 << 30)
    for path, message in ((huge, "8,192 MB"), (tmp_path / "gone", "file not found"), (tmp_path, "directory")):
        with pytest.raises(EmmclabError, match=message):
            read_benchmark(path)


@hypothesis_settings(max_examples=cases(400))
@given(data=st.data())
def test_any_bytes_are_figures_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    samples = [text for text, *_ in SAMPLES.values()] + [_fio_json({}, {}), "1, 5000, 0, 4096, 0\n" * 3]
    text = data.draw(st.sampled_from(samples)).encode()
    for _ in range(data.draw(st.integers(0, 4))):
        begin, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 40))
        insert = data.draw(
            st.binary(max_size=20) | st.sampled_from([b"9" * 400, b"nan", b"-1", b"0", b"1e999", text[:200]])
        )
        text = text[:begin] + insert + text[begin + length :]
    path = tmp_path_factory.getbasetemp() / "x_clat.1.log"
    path.write_bytes(text)
    try:
        found = read_benchmark(path)
    except EmmclabError as error:
        assert error.hint
        return
    assert found and all(row.job or row.refused for row in found)
    assert all(0 < (row.value or 0.0) < float("inf") or row.refused for row in found)


@pytest.fixture(scope="module")
def fio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where fio can bypass the page cache, with a file of 4 MB."""
    if shutil.which("fio") is None:
        missing("fio", "install fio")
    folder = tmp_path_factory.mktemp("fio")
    made = subprocess.run(
        _fio(folder, "--name=make", "--rw=write", "--bs=64k"), capture_output=True, text=True, check=False
    )
    if made.returncode:
        missing("a file system that bypasses the page cache (O_DIRECT)", "set TMPDIR to a folder of one")
    return folder


def _fio(folder: Path, *options: str) -> list[str]:
    return ["fio", f"--filename={folder / 'data'}", "--size=4m", "--direct=1", "--ioengine=libaio", *options]


@pytest.mark.parametrize(("jobs", "depth", "grouped"), [(1, 1, True), (4, 8, True), (4, 8, False)])
def test_text_json_terse_output_and_logs_of_real_fio_agree(fio: Path, jobs: int, depth: int, grouped: bool) -> None:
    options = [
        f"--numjobs={jobs}",
        f"--iodepth={depth}",
        *(["--group_reporting"] if grouped else []),
        f"--write_lat_log={fio / 'log'}",
    ]
    command = _fio(
        fio, "--name=job", "--rw=randread", "--bs=4k", "--number_ios=400", *options, "--output-format=normal,json,terse"
    )
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    begin, end = output.index("\n{") + 1, output.index("\n}\n") + 3
    terse = "".join(line for line in output.splitlines(keepends=True) if line.startswith("3;fio"))
    normal = (output[:begin] + output[end:]).replace(terse, "")
    found = [_read(fio, text) for text in (output[begin:end], normal, terse)]
    in_json, in_text, in_terse = ({row.metric: row for row in rows} for rows in found)
    assert {row.job for row in (*found[0], *found[1])} == {FigureJob("randread", 4096, jobs, depth)}
    assert not any(row.refused for row in (*found[0], *found[1]))
    assert set(in_json) == set(in_text) and len(in_json) == (6 if grouped else 3)
    for metric, row in in_json.items():
        assert in_text[metric].value == pytest.approx(row.value, rel=0.02, abs=1.0)
    assert all("pattern, number of jobs" in row.refused for row in found[2])
    if grouped:
        assert in_terse["iops" if "iops" in in_terse else "mb_per_s"].refused
        assert in_terse["clat_us_p50"].value == pytest.approx(in_json["clat_us_p50"].value, rel=0.02, abs=1.0)
    stated = {"rw": "randread", "jobs": str(jobs), "depth": str(depth)}
    logs = [read_benchmark(fio / f"log_clat.{at}.log", assume=stated) for at in range(1, jobs + 1)]
    means = [row.value for log in logs for row in log if row.metric == "clat_us_mean"]
    assert sum(means) / len(means) == pytest.approx(in_json["clat_us_mean"].value, rel=0.02)


@pytest.fixture(scope="module")
def real() -> Path:
    """The folder of files from real devices."""
    folder = Path(os.environ.get("EMMCLAB_REAL", ROOT.parent / "shared" / "real"))
    if not folder.is_dir():
        missing("the folder of results of real devices", "set EMMCLAB_REAL to it")
    return folder


def test_the_text_of_48_runs_on_a_phone_gives_the_published_figures(real: Path) -> None:
    paths = sorted((real / "files" / "pixel4-fio").glob("*.txt"))
    found: dict[tuple[str, str], float] = {}
    for row in read_benchmark(*paths):
        assert row.job and not row.refused, row
        found[str(row.job), row.metric] = row.value
    with (real / "pixel4-fio.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(paths) == 48
    for line in lines:
        job = FigureJob(line["rw"], int(line["bs_kb"]) * 1024, int(line["threads"]), int(line["depth"]))
        for metric in ("iops", "slat_us_mean", "clat_us_mean", "clat_us_p50", "clat_us_p99", "clat_us_p99_9"):
            assert found.pop((str(job), metric)) == pytest.approx(float(line[metric]), rel=1e-3, abs=0.051), (
                job,
                metric,
            )
    assert not found


def test_files_of_other_devices_give_what_their_authors_state(real: Path) -> None:
    def rows(name: str) -> Sequence[MeasuredFigure]:
        return read_benchmark(*sorted((real / "files").glob(name)))

    sizes = [row for row in rows("ufs-seqread-by-size/*") if row.job]
    assert [row.job.block_bytes if row.job else 0 for row in sizes] == [1 << power for power in range(12, 29)]
    with (real / "measured.csv").open() as file:
        stated = [float(line["value"]) for line in csv.DictReader(file) if line["condition"] == "psync direct"]
        assert [row.value for row in sizes[:10]] == pytest.approx(stated, rel=0.01)
    assert [(str(row.job), row.value) for row in rows("pixel4-mobibench/*")] == [
        ("randwrite 4 KB, depth 1", 4010.92),
        ("randwrite 64 KB, 8 x 1", 953.25),
    ]
    mails = rows("allwinner-android13-emmc/mail-7*")
    without = [row.value for row in mails if row.source == "AndroBench" and row.condition == "without hsq"]
    assert without == [51.35, 143.65, 1887.13, 5485.19]
    mails = read_benchmark(*(real / "files").glob("allwinner-android13-emmc/mail-7*"), assume={"pattern": "random"})
    tails = [(str(row.job), row.value) for row in mails if row.metric == "clat_us_p99"]
    assert tails == [("randread 4 KB, 8 x 1", 2769.0), ("randread 4 KB, 8 x 1", 1450.0)]
    assert {row.refused for row in rows("sbc/armsom-fio.txt")} == {f"{NOT_STATED}number of jobs, queue depth"}
    assert len(rows("sbc/armsom-fio.txt")) == 24 and len(rows("sbc/A1*")) == 64
    with pytest.raises(EmmclabError, match="not the result of a benchmark"):
        rows("sbc/sbc-bench.txt")

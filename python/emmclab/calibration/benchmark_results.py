"""Figures in the results of benchmarks that people publish: fio, iozone, AndroBench, Mobibench and others.

`read_benchmark` recognises each form by its contents. A result states a part of its job only: a figure whose size,
pattern, number of jobs or queue depth is not stated is returned with this reason in `refused`, and so is one that was
not measured on a device, for example by reading from the page cache.
"""

import quopri
import re
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path

from emmclab.calibration.fio_results import (
    FigureRow,
    fio_commands,
    fio_json_rows,
    fio_log_rows,
    fio_terse_rows,
    fio_text_rows,
    is_fio_log,
    is_job_file,
    size_of,
    throughput,
    unquoted,
)
from emmclab.calibration.measured_figures import MeasuredFigure, assumed, figures_in_table, figures_of_row
from emmclab.errors import FormatError, InputError

#: Largest file that is read, bytes. Text of a benchmark is a few KB, a log of fio some MB.
_LARGEST = 256 << 20
_FORMS = (
    "fio's text, JSON, terse output and logs, iozone, AndroBench, Mobibench, CrystalDiskMark, tables of block sizes, "
    "or a CSV table with the columns rw, bs_kb, jobs, depth and a metric"
)
_Rows = Iterator[tuple[str, FigureRow]]
_NUMBER = r"\d{1,12}(?:\.\d{1,6})?"


def read_benchmark(*paths: str | PathLike[str], assume: Mapping[str, str] | None = None) -> list[MeasuredFigure]:
    """Read the figures in results of benchmarks, in the order of the files.

    `paths` may contain a job file of fio, which states the job of the logs of fio among them. `assume` states what
    results do not state: `pattern` (`random` or `sequential`), `block_kb`, `jobs`, `depth`, `device`, `preset` and the
    other columns of a table of figures (`read_figures`).

    Errors: InputError for a file that cannot be read, FormatError for one that is not a result of a benchmark.
    """
    stated = assumed(assume or {})
    texts = {Path(path): _text(Path(path)) for path in paths}
    job_files = [path for path, text in texts.items() if is_job_file(text) and "groupid=" not in text]
    logs = any(is_fio_log(text) for text in texts.values())
    if len(job_files) > 1 or (job_files and not logs):
        raise FormatError(
            f"{job_files[-1]}: a job file of fio, which has no figures",
            hint="give it with logs of fio that it wrote, or give the results of the run",
        )
    job_file = texts[job_files[0]] if job_files else None
    figures: list[MeasuredFigure] = []
    for path, text in texts.items():
        if path not in job_files:
            figures += _figures(path, text, job_file, stated)
    return figures


def _text(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_size > _LARGEST:
            raise FormatError(
                f"{path}: {path.stat().st_size >> 20:,} MB, more than any result has", hint=f"give {_FORMS}"
            )
        data = path.read_bytes()
    except OSError as error:
        raise InputError.of(error, path) from None
    if data.count(b"=3D") > 3:  # a mail in its stored form
        data = quopri.decodestring(data)
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    text = data.decode(encoding, "replace")
    if not text.strip("\0\r\n\t "):
        raise FormatError(f"{path}: the file is empty", hint=f"give {_FORMS}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _figures(path: Path, text: str, job_file: str | None, assume: Mapping[str, str]) -> list[MeasuredFigure]:
    name = str(path)
    if is_fio_log(text):
        rows = list(fio_log_rows(path, text, job_file))
    elif re.search(r'\{\s*"fio version"', text):
        rows = list(fio_json_rows(name, text))
    else:
        rows = [row for read in _READERS for row in read(name, text)]
    figures = [figure for where, row in rows for figure in figures_of_row(where, {**assume, **row})]
    header = next((line for line in text.casefold().splitlines() if line.strip() and line[0] != "#"), "")
    is_table = not rows and "," in header and bool(re.search(r"\b(?:rw|op|pattern|metric)\b", header))
    if is_table:
        figures = list(figures_in_table(name, text, assume))
    if not figures:
        cause = "no figures" if rows or is_table else "not the result of a benchmark that is known"
        raise FormatError(f"{path}: {cause}", hint=f"give {_FORMS}")
    return figures


def _mobibench(name: str, text: str) -> _Rows:
    """Yield the results of Mobibench (`mobibench.c`, options -a and -y), whose threads wait for each request."""
    for number, block in enumerate(text.split("[mobibench measurement setup]")[1:], 1):
        size = re.search(r"IO size : (\d{1,9}) KB", block)
        access = re.search(r"Access Mode ([0-3]), Sync Mode (\d)", block)
        threads = re.search(r"# of Threads : (\d{1,5})", block)
        rate = re.search(rf"({_NUMBER}) B/sec(?:.{{0,120}}?({_NUMBER}) IOPS)?", block)
        ended = re.search(r"Err string : (.{1,80})", block)
        row = {"depth": "1", "source": "Mobibench"}
        where = f"{name}: result {number}"
        if not rate or not access:
            cause = "it is one of SQLite transactions" if "Operation :" in block else "it has no figures"
            yield where, row | {"refused": cause}
            continue
        rw, sync = ("write", "randwrite", "read", "randread")[int(access[1])], int(access[2])
        row |= {"rw": rw, "jobs": threads[1]} if threads else {"rw": rw}
        row |= {"block_kb": size[1]} if size else {}
        row |= throughput(rw.startswith("rand"), float(rate[2] or 0), float(rate[1]) / 1e6)
        if ended and ended[1].strip() != "No error":
            row["refused"] = f"it ended with `{ended[1].strip()}`"
        elif sync not in (3, 4):
            row["refused"] = f"it went through the page cache (sync mode {sync})"
        elif sync == 4 and "write" in rw:
            row["refused"] = "it waited for durable data (sync mode 4)"
        yield where, row


def _crystal_disk_mark(name: str, text: str) -> _Rows:
    """Yield the results of CrystalDiskMark 3 to 8, which bypasses the page cache. Q is the depth of each thread."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"\s*\[(Read|Write|Mix)\]", line):
            section = heading[1].casefold()
        found = re.match(
            rf"\s*(SEQ|RND|Sequential|Random)\s+(?:(Read|Write)\s*)?(\d{{1,6}}\s*[KM]i?B)?\s*"
            rf"(?:\((?:QD?=\s*(\d{{1,5}}))?[,\s]*(?:T=\s*(\d{{1,5}}))?\s*\))?"
            rf"\s*:\s*({_NUMBER}) MB/s(?:\s*\[\s*({_NUMBER}) IOPS)?",
            line,
        )
        op = (found[2] or section).casefold() if found else ""
        if not found or not op or "CrystalDiskMark" not in text:
            continue
        is_random = found[1].startswith(("RND", "Rand"))
        row = {"rw": ("rand" if is_random else "") + {"mix": "rw"}.get(op, op), "source": "CrystalDiskMark"}
        # Versions 5 and 6 leave out a depth of 1, and no version before 5 has threads.
        depth = found[4] or ("1" if found[5] else None)
        row |= {key: value for key, value in (("depth", depth), ("jobs", found[5])) if value}
        row |= {"block_kb": repr((size_of(found[3].replace(" ", "")) or 0) / 1024)} if found[3] else {}
        yield f"{name}: line {number}", row | throughput(is_random, float(found[7] or 0), float(found[6]))


#: Names of the columns of iozone after `reclen`, in its order. Other columns are of loads that no job of fio has.
_IOZONE = ("write", "write", "read", "read", "randread", "randwrite", "backward read", "record rewrite", "stride read")
_PROCESSES = {"initial writers": "write", "rewriters": "write", "readers": "read", "re-readers": "read"} | {
    "random readers": "randread", "random writers": "randwrite"
}  # fmt: skip


def _iozone(name: str, text: str) -> _Rows:
    """Yield the results of iozone: its table, and the sums of processes, which wait for each request."""
    if "iozone" not in text.casefold() and "reclen" not in text:
        return
    is_ops, is_synced, refused, header, size = False, False, "", [], None
    for number, line in enumerate(unquoted(text).expandtabs().splitlines(), 1):
        where = f"{name}: line {number}"
        if "Run began" in line:
            is_ops, is_synced, refused = False, False, ""
        if command := re.search(r"(?:Command line used:|^\s*[$#]) *\S*iozone(.{0,400})", line):
            options = [option[1:] for option in command[1].split() if re.fullmatch(r"-[a-zA-Z]+", option)]
            letters = set("".join(options))
            refused = "" if "I" in letters else "it went through the page cache (iozone without -I)"
            refused = "its figures are times (iozone -N)" if "N" in letters else refused
            is_ops, is_synced = "O" in letters, "o" in letters
        is_ops |= "operations per second" in line
        if found := re.search(r"Record Size (\d{1,9}) kB", line, re.I):
            size = found[1]
        words = [(word[0], word.end()) for word in re.finditer(r"\S+", line)]
        figures: list[tuple[str, str, float, str | None, str]] = []
        rate = rf"see throughput for\s+(\d{{1,5}}) ([a-z-]+(?: [a-z]+)?)\s*=\s*({_NUMBER}) \w{{1,6}}/sec"
        if found := re.search(rate, line):
            figures = [(_PROCESSES.get(found[2], found[2]), found[1], float(found[3]), size, "")]
        elif any(word == "reclen" for word, _ in words):
            header = words[[word for word, _ in words].index("reclen") :]
        elif header and len(words) > 2 and all(word.isdecimal() and len(word) < 13 for word, _ in words):
            for word, end in words[2:]:
                at = min(range(1, len(header)), key=lambda at: abs(header[at][1] - end), default=0)
                if not at or abs(header[at][1] - end) > 2:
                    raise FormatError(
                        f"{where}: `{word}` is under no column of iozone's table", hint="copy the table with its spaces"
                    )
                rw, label = _IOZONE[at - 1] if at <= len(_IOZONE) else header[at][0], header[at][0]
                figures.append((rw, "1", float(word), words[1][0], label if label in ("rewrite", "reread") else ""))
        for rw, jobs, value, block_kb, condition in figures:
            row = {"rw": rw, "jobs": jobs, "depth": "1", "source": "iozone", "condition": condition}
            row |= {"block_kb": block_kb} if block_kb else {}
            cause = refused or ("it waited for durable data (iozone -o)" if is_synced and "write" in rw else "")
            row |= {"refused": cause} if cause else {}
            kb = float(block_kb or 0)
            iops = value if is_ops else value / kb if kb else 0.0
            yield where, row | throughput(rw.startswith("rand"), iops, 0.0 if is_ops else value * 1024 / 1e6)


def _androbench(name: str, text: str) -> _Rows:
    """Yield the figures of AndroBench; the number of threads and the sizes only if the text states them."""
    if "CrystalDiskMark" in text or not re.search(r"andro ?bench", text, re.I):
        return
    text = unquoted(text)
    threads = re.search(r"(\d{1,3}) threads", text)
    sizes = {kind.casefold(): kb for kind, kb in re.findall(r"(Sequential|Random):\s*(\d{1,7}) ?KB", text, re.I)}
    columns: list[str] = []
    kind = op = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count("|") > 1:
            columns = [cell.strip() for cell in line.split("|")][1:]
        if found := re.match(r"\W{0,8}(?:\d\)\s*)?(sequential|random) (read|write)\b(.{0,400})", line, re.I):
            kind, op, figures = found[1].casefold(), found[2].casefold(), found[3]
        elif kind and (average := re.match(r"\s*average.{0,20}?:(.{1,80})", line, re.I)):
            figures = average[1]
        else:
            continue
        row = {"op": op, "pattern": kind, "source": "AndroBench"}
        row |= {"jobs": threads[1]} if threads else {}
        row |= {"block_kb": sizes[kind]} if kind in sizes else {}
        values = re.findall(rf"({_NUMBER})[ ,;|]*(MB/s|MiB/s|IOPS)", figures, re.I)
        row |= {"block_kb": "4"} if re.search(r"IOPS ?\(4K\)", figures, re.I) else {}
        same_unit = len({unit.casefold() for _, unit in values}) == 1
        for at, (value, unit) in enumerate(values if same_unit else values[:1]):
            scale = 1.048576 if unit.casefold() == "mib/s" else 1.0
            figure = {"iops": value} if unit.casefold() == "iops" else {"mb_per_s": repr(float(value) * scale)}
            condition = columns[at] if len(columns) == len(values) else ""
            if float(value):
                yield f"{name}: line {number}", row | figure | {"condition": condition}


def _block_size_table(name: str, text: str) -> _Rows:
    """Yield the tables by block size: a column for each, as yabs prints them from results of fio, or a row for each.

    The line above a table is its condition, a heading of Markdown the name of the device.
    """
    # yabs divides KiB by powers of 1,000.
    scales = {"kb": 1.024e-3, "mb": 1.024, "gb": 1.024e3}
    is_mixed = bool(re.search(r"mixed r/w", text, re.I))
    has_random = bool(re.search(r"^[\s|]*rand(?:read|write)", text, re.I | re.M))
    commands = [options for _, options in fio_commands(text)] if "Block Size" in text else []
    options = commands[0] if commands and all(options == commands[0] for options in commands) else {}
    stated = {key: options[option] for key, option in (("jobs", "numjobs"), ("depth", "iodepth")) if option in options}
    sizes: list[int | None] = []
    columns: list[re.Match[str] | None] = []
    title: FigureRow = {}
    for number, line in enumerate(unquoted(text).splitlines() if "Block Size" in text else (), 1):
        if "|" not in line:
            if words := re.sub(r"^[#\s]*|fio Disk Speed Tests.*|^-+$", "", line).strip():
                title = {"device" if line.lstrip().startswith("#") else "condition": words[:80]}
            continue
        label, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        label = label.casefold()
        if label.startswith("block size"):
            sizes = [size_of(cell.split()[0]) if cell.split() else None for cell in cells]
            columns = [re.fullmatch(r"(sequential|random) (read|write) \((MB/s|IOPS)\)", cell, re.I) for cell in cells]
        row = title | stated | ({"refused": "its reads and writes ran at the same time"} if is_mixed else {})
        figures: list[FigureRow] = []
        if label in ("read", "write", "randread", "randwrite"):
            for size, cell in zip(sizes, cells, strict=False):
                if size and (found := re.search(rf"({_NUMBER}) ([KMG]B)/s\s*\(({_NUMBER})(k?)\)", cell, re.I)):
                    iops = float(found[3]) * (1e3 if found[4] else 1)
                    figure = throughput(label.startswith("rand"), iops, float(found[1]) * scales[found[2].casefold()])
                    figures.append(figure | {"rw" if has_random else "op": label, "block_kb": repr(size / 1024)})
        elif label.isdecimal() and len(label) < 9 and int(label):
            for column, cell in zip(columns, cells, strict=False):
                if column and re.fullmatch(_NUMBER, cell) and float(cell):
                    metric = "iops" if column[3].casefold() == "iops" else "mb_per_s"
                    pattern = {"pattern": column[1].casefold(), "op": column[2].casefold()}
                    figures.append(pattern | {metric: cell, "block_kb": label})
        yield from ((f"{name}: line {number}", row | figure) for figure in figures)


def _device_table(name: str, text: str) -> _Rows:
    """Yield Markdown tables with a column for each device and rows such as `4k read IOPS` and `write MB/s`."""
    devices: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        label, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        found = re.fullmatch(r"(?:(\d{1,5}) ?k )?(read|write) (IOPS|MB/s)", label, re.I)
        if cells and not label:
            devices = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell) for cell in cells]
        if not found or len(cells) != len(devices):
            continue
        row = {"op": found[2].casefold()} | ({"block_kb": found[1]} if found[1] else {})
        metric = "iops" if found[3].casefold() == "iops" else "mb_per_s"
        for device, cell in zip(devices, cells, strict=True):
            if re.fullmatch(_NUMBER, cell) and float(cell):
                yield f"{name}: line {number}", row | {"device": device, metric: cell}


#: The readers of forms that may be in one text: each yields nothing if its form is not in it.
_READERS = (
    fio_text_rows,
    fio_terse_rows,
    _mobibench,
    _crystal_disk_mark,
    _iozone,
    _androbench,
    _block_size_table,
    _device_table,
)

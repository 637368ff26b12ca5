"""Command-line options that several commands share."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from emmclab.cli.command import READING_PANEL
from emmclab.cli.console import print_stderr
from emmclab.cli.declared_options import argument, option
from emmclab.cli.name_completion import complete_words, format_names
from emmclab.cli.output_files import in_a_folder
from emmclab.errors import ConfigError
from emmclab.runtime.lists import split_names
from emmclab.traces.profile_fields import jumps_text
from emmclab.traces.profile_options import bin_ns
from emmclab.traces.reading import or_bundled, read, reading_options
from emmclab.traces.trace import Trace

if TYPE_CHECKING:
    from emmclab.simulation.result import Result
    from emmclab.traces.profile import Profile


#: Creates a command-line option on how to read a trace.
_reading = partial(option, panel=READING_PANEL, advanced=True)
TraceFile = Annotated[Path, argument("TRACE", "A trace of any format, plain, gzip, bzip2, zstd or xz; `-` for stdin.")]
#: Matches the name of a per-processor file of blktrace: the name of the recording, and the number of the processor.
_PROCESSOR = re.compile(r"(?P<recording>.+)\.blktrace\.\d+(\.(gz|zst|zstd|xz))?")


def stands_for_several(path: Path) -> bool:
    """Return whether a file belongs to a blktrace recording of several files (one per CPU), read together."""
    return _PROCESSOR.fullmatch(path.name) is not None


def one_per_recording(paths: list[Path] | None) -> list[Path]:
    """Return one file of each blktrace recording; the trace reader finds the files of the other CPUs.

    >>> one_per_recording([Path("sda.blktrace.0"), Path("sda.blktrace.1"), Path("sdb.blktrace.1.gz")])
    [PosixPath('sda.blktrace.0'), PosixPath('sdb.blktrace.1.gz')]
    """
    first_files: dict[Path, Path] = {}
    for path in paths or ():
        match = _PROCESSOR.fullmatch(path.name)
        first_files.setdefault(path.with_name(match["recording"]) if match else path, path)
    return [path for path in paths or () if path in first_files.values()]


TraceFiles = Annotated[
    list[Path],
    argument(
        "TRACE...", "Traces of any format, plain, gzip, bzip2, zstd or xz; `-` for stdin.", callback=one_per_recording
    ),
]
Format = Annotated[
    str | None,
    _reading(
        "Format of the input (`emmclab formats`); default: recognised by content.",
        metavar="NAME",
        autocompletion=format_names,
    ),
]
Columns = Annotated[
    str | None,
    _reading(
        "Columns of a generic CSV in order, for example `arrival,op,sector,sectors`; default: the header line.",
        metavar="A,B,...",
    ),
]
Figures = Annotated[
    Path | None,
    option("Also write each figure to this folder as SVG and PDF, and its data as CSV.", advanced=True, metavar="DIR"),
]
OverTime = Annotated[
    Path | None,
    option(
        "Also write IOPS, MB/s and response times over time to this file, .csv or .parquet.",
        advanced=True,
        callback=in_a_folder,
    ),
]
Bin = Annotated[
    str | None,
    option(
        "Width of the time bins, for example 1s or 100ms; doubled if there would be more than 16,384 bins. Default: "
        "at most 256 bins.",
        advanced=True,
        metavar="WIDTH",
    ),
]
AsJson = Annotated[bool, option("Print JSON, for programs.", None, "--json")]


def key_values(text: str | None, option: str, example: str) -> dict[str, str]:
    """Parse `KEY=VALUE,...`, the value of an option, or None; `example` is for the hint."""
    values: dict[str, str] = {}
    for item in [] if text is None else split_names(text, "column", option, example):
        key, equals, value = item.partition("=")
        if not equals or not value.strip():
            raise ConfigError(f"`{item}` is not KEY=VALUE", field=option, hint=f"write `{option} {example}`")
        values[key] = value.strip()
    return values


@dataclass(frozen=True)
class Reading:
    """Command-line options for how to read a trace."""

    format: Format = None
    lenient: Annotated[bool, _reading("Skip bad records and count them.")] = False
    columns: Columns = None
    time_unit: Annotated[
        str | None,
        _reading(
            "Unit of times, for formats that do not define it: s, ms, us, ns; `none` for a table without times.",
            metavar="UNIT",
            autocompletion=complete_words("s", "ms", "us", "ns", "none"),
        ),
    ] = None
    size_unit: Annotated[
        str | None,
        _reading(
            "Unit of addresses and sizes, for formats that do not define it: sector, byte, kb, page.",
            metavar="UNIT",
            autocompletion=complete_words("sector", "byte", "kb", "page"),
        ),
    ] = None
    reorder_window: Annotated[
        int | None, _reading("Number of requests that are sorted by arrival at once; default: 65,536.", min=1)
    ] = None
    mend_clock: Annotated[
        str | None,
        _reading(
            "Shorten clock jumps and pauses of the recording to the median gap, and move the requests after a backward "
            "jump to the end of those before it. With a length, for example 1h: shorten longer gaps, in one pass.",
            metavar="[LENGTH]",
        ),
    ] = None
    reissue_window: Annotated[
        str | None,
        _reading(
            "Time from the first issue of a request to a suspected re-issue; default: 0.5ms-3ms, the time in which a "
            "UFS link wakes up. For a busy SCSI host use 0-100ms.",
            metavar="FROM-TO",
        ),
    ] = None
    drop_reissued: Annotated[
        bool, _reading("Drop suspected re-issues: requests that the driver returned and the kernel issued again.")
    ] = False
    only: Annotated[
        list[str] | None,
        _reading(
            "Read only requests that match all conditions, for example `device=8,0`, `process=kworker/*|fio`, "
            "`pid=71`, `op=read`, `from=10s,to=2m30s` (since the first arrival).",
            metavar="KEY=VALUE,...",
        ),
    ] = None

    def open(self, path: Path) -> Trace:
        """Open one trace with these options; `-` is stdin."""
        if str(path) == "-":
            return read("/dev/stdin", **self.changed_options())
        return read(or_bundled(path), **self.changed_options())

    def changed_options(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, as keywords of `emmclab.read`."""
        usual = reading_options()
        return {name: value for name, value in asdict(self).items() if value not in (None, []) and value != usual[name]}

    def refuse(self, name: str, hint: str = "leave it out") -> None:
        """Reject reading options if no trace is read; `name` is what the command uses instead of a trace."""
        for field in self.changed_options():
            option = f"--{field.replace('_', '-')}"
            raise ConfigError(
                f"{option} is for reading a trace, and no trace is read for {name}", field=option, hint=hint
            )

    @property
    def changes(self) -> bool:
        """Whether these options move requests in time, omit requests, or change which requests count as re-issued."""
        return bool(self.mend_clock or self.reissue_window or self.drop_reissued or self.only)

    def note_changed(self, name: str, ledger: Mapping[str, int | None]) -> None:
        """Print what the reading options changed in a trace, according to the counts in its ledger."""
        if self.mend_clock:
            print_stderr(f"note: {name}: {jumps_text(ledger['mended_jumps'] or 0)} removed (--mend-clock)")
        if self.reissue_window and ledger["reissued"] is not None:
            count, window = ledger["reissued"], self.reissue_window
            print_stderr(f"note: {name}: {count:,} suspected re-issues within {window} (--reissue-window)")
        if self.drop_reissued and ledger["reissued"] is None:
            print_stderr(f"note: {name}: re-issues are unknown without processes and completions (--drop-reissued)")
        elif self.drop_reissued:
            print_stderr(f"note: {name}: {ledger['dropped_reissues']:,} suspected re-issues dropped (--drop-reissued)")
        if self.only:
            print_stderr(f"note: {name}: {ledger['filtered']:,} requests left out (--only)")


def note_over_time(sources: "Sequence[Profile | Result]", path: Path, width: str | None) -> None:
    """Write a table of figures over time; print the number of bins, and a note if bins are wider than requested."""
    from emmclab.simulation.over_time import over_time_rows, write_over_time

    rows = over_time_rows(sources)
    write_over_time(rows, path)
    requested_s = bin_ns(width) / 1e9
    widest_s = max((row["width_s"] for row in rows), default=0.0)
    if width is not None and widest_s > 1.5 * requested_s:
        print_stderr(f"note: bins of {widest_s:g} s, because those of {width} would be more than 16,384")
    print_stderr(
        f"over time: {len(rows):,} bins in {path}" if rows else "over time: no requests, so nothing was written"
    )

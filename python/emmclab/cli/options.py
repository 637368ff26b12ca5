"""The options that commands share."""

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
from emmclab.traces.profile_fields import jumps_text
from emmclab.traces.profile_options import bin_ns
from emmclab.traces.reading import or_bundled, read, reading_options
from emmclab.traces.trace import Trace

if TYPE_CHECKING:
    from emmclab.simulation.result import Result
    from emmclab.traces.profile import Profile


#: Makes an option on how to read a trace.
_reading = partial(option, panel=READING_PANEL, advanced=True)
TraceFile = Annotated[Path, argument("TRACE", "A trace of any format; gzip, bzip2, zstd, xz too; `-` for stdin.")]
#: A file of blktrace for one processor; its name begins with that of the recording.
_PROCESSOR = re.compile(r"(?P<recording>.+)\.blktrace\.\d+(\.(gz|zst|zstd|xz))?")


def stands_for_several(path: Path) -> bool:
    """Return whether a file is one of blktrace's files per processor; if one is named, all are read."""
    return _PROCESSOR.fullmatch(path.name) is not None


def one_per_recording(paths: list[Path] | None) -> list[Path]:
    """Keep one file of each blktrace recording; the reader finds the other processors' files.

    >>> one_per_recording([Path("sda.blktrace.0"), Path("sda.blktrace.1"), Path("sdb.blktrace.1.gz")])
    [PosixPath('sda.blktrace.0'), PosixPath('sdb.blktrace.1.gz')]
    """
    kept: dict[Path, Path] = {}
    for path in paths or ():
        match = _PROCESSOR.fullmatch(path.name)
        kept.setdefault(path.with_name(match["recording"]) if match else path, path)
    return [path for path in paths or () if path in kept.values()]


TraceFiles = Annotated[
    list[Path],
    argument("TRACE...", "Traces of any format; gzip, bzip2, zstd, xz too; `-` for stdin.", callback=one_per_recording),
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
        "Columns of a generic CSV in order, for example `arrival,op,sector,sectors`; default: its heading.",
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
        "Also write IOPS, MB/s and response times over time, as .csv or .parquet by the name.",
        advanced=True,
        callback=in_a_folder,
    ),
]
Bin = Annotated[
    str | None,
    option(
        "Width of the bins of time, for example 1s or 100ms; doubled if there would be more than 16,384. Default: at "
        "most 256 bins.",
        advanced=True,
        metavar="WIDTH",
    ),
]
AsJson = Annotated[bool, option("Print JSON, for programs.", None, "--json")]


@dataclass(frozen=True)
class Reading:
    """How to read a trace, as given on the command line."""

    format: Format = None
    lenient: Annotated[bool, _reading("Skip bad records and count them.")] = False
    columns: Columns = None
    time_unit: Annotated[
        str | None,
        _reading(
            "Unit of times, for formats that do not define it: s, ms, us, ns; none if a table has no times.",
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
        int | None, _reading("Window, in requests, in which they are sorted by arrival; default: 65,536.", min=1)
    ] = None
    mend_clock: Annotated[
        str | None,
        _reading(
            "Cut clock jumps and pauses of the recording to the median gap, and move the requests after a backward "
            "jump to the end of those before it. With a length, for example 1h: cut longer gaps, in one pass.",
            metavar="[LENGTH]",
        ),
    ] = None
    reissue_window: Annotated[
        str | None,
        _reading(
            "Time from the first issue of a request to a suspected re-issue; default: 0.5ms-3ms, that of a "
            "UFS link that wakes up. A busy SCSI host takes 0-100ms.",
            metavar="FROM-TO",
        ),
    ] = None
    drop_reissued: Annotated[
        bool, _reading("Drop suspected re-issues: requests that the driver returned and the kernel issued again.")
    ] = False
    only: Annotated[
        list[str] | None,
        _reading(
            "Select these requests, for example `device=8,0`, `process=kworker/*|fio`, `pid=71`, `op=read`, "
            "`from=10s,to=2m30s` (from the first arrival); several conditions must all hold.",
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
        """Reject options of reading where no trace is read; `name` is what is asked for instead."""
        for field in self.changed_options():
            option = f"--{field.replace('_', '-')}"
            raise ConfigError(
                f"{option} is for reading a trace, and no trace is read for {name}", field=option, hint=hint
            )

    @property
    def changes(self) -> bool:
        """Whether options shift requests, leave some out, or change which count as re-issued."""
        return bool(self.mend_clock or self.reissue_window or self.drop_reissued or self.only)

    def note_changed(self, name: str, ledger: Mapping[str, int | None]) -> None:
        """Print what the options changed in a trace, according to its ledger."""
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


def note_over_time(found: "Sequence[Profile | Result]", path: Path, width: str | None) -> None:
    """Write figures over time, and print the number of bins and whether they are wider than requested."""
    from emmclab.simulation.over_time import over_time_rows, write_over_time

    rows = over_time_rows(found)
    write_over_time(rows, path)
    asked_s = bin_ns(width) / 1e9
    widest_s = max((row["width_s"] for row in rows), default=0.0)
    if width is not None and widest_s > 1.5 * asked_s:
        print_stderr(f"note: bins of {widest_s:g} s, because those of {width} would be more than 16,384")
    print_stderr(
        f"over time: {len(rows):,} bins in {path}" if rows else "over time: no requests, so nothing was written"
    )

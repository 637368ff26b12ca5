"""The options that commands share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from emmclab import _core
from emmclab.trace import Trace, read


def _format_names(incomplete: str) -> list[str]:
    return [entry["name"] for entry in _core.formats() if entry["name"].startswith(incomplete)]


TraceFile = Annotated[
    Path, typer.Argument(metavar="TRACE", help="A trace of any format; gzip, zstd, xz too.")
]
TraceFiles = Annotated[
    list[Path], typer.Argument(metavar="TRACE...", help="Traces of any format; gzip, zstd, xz too.")
]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Read as this format, rather than find it by content.",
        autocompletion=_format_names,
        rich_help_panel="Reading",
    ),
]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Skip bad records and count them.", rich_help_panel="Reading")
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Columns of a generic CSV in order, as `arrival,op,sector,sectors`.",
        rich_help_panel="Reading",
    ),
]
TimeUnit = Annotated[
    str | None,
    typer.Option(
        metavar="UNIT",
        help="Unit of times where the format leaves it open: s, ms, us, ns.",
        rich_help_panel="Reading",
    ),
]
SizeUnit = Annotated[
    str | None,
    typer.Option(
        metavar="UNIT",
        help="Unit of addresses and sizes where the format leaves it open: sector, byte, kb, page.",
        rich_help_panel="Reading",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@dataclass(frozen=True)
class Reading:
    """How to read a trace, as given on the command line."""

    format: str | None
    lenient: bool
    columns: str | None
    time_unit: str | None
    size_unit: str | None

    def open(self, path: Path) -> Trace:
        """Open one trace with these options."""
        return read(path, **asdict(self))

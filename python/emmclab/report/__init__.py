"""The report: one self-contained HTML page for one or several traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emmclab.files import write_whole
from emmclab.profile import Profile
from emmclab.report.page import render

__all__ = ["render", "write_report"]


def write_report(profiles: Sequence[Profile], path: str | Path) -> None:
    """Write the report page for `profiles`; the file appears when it is whole, and never otherwise."""
    write_whole(path, render(profiles))

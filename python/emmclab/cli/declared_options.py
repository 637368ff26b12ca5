"""Options of the command line that are options of runs, made from the declarations in `run_options`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from emmclab.cli.name_completion import complete_words
from emmclab.cli.output_files import in_a_folder
from emmclab.simulation.run_options import RUN_OPTIONS, check


def declared(name: str, **more: Any) -> Any:
    """Make the option of the command line for an option of runs; it rejects values outside its range."""
    one = RUN_OPTIONS[name]

    def in_range(value: Any) -> Any:
        check(name, value)
        return value

    if one.range:
        more.setdefault("callback", in_range)
    if not isinstance(one.default, bool):
        more.setdefault("metavar", "|".join(one.words) or one.metavar)
    if one.words:
        more.setdefault("autocompletion", complete_words(*one.words))
    return typer.Option(one.command_line, help=one.about, rich_help_panel=one.panel, **more)


Percentiles = Annotated[str | None, declared("percentiles")]
Perfetto = Annotated[Path | None, declared("perfetto", callback=in_a_folder)]

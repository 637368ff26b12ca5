"""Writes charts to files (SVG and PDF, and their data as CSV), and provides the JavaScript library of the pages.

vl-convert draws and bundles in a separate process: while it works, at first for seconds, it holds Python's global
interpreter lock, which would delay Ctrl-C. The bundle of Vega, Vega-Lite and vega-embed depends only on the version of
vl-convert; it is cached in the user's cache folder, with its digest.
"""

import atexit
import contextlib
import hashlib
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from emmclab.errors import EmmclabError
from emmclab.pages.plots import Chart, Rows, specification
from emmclab.pages.profile_figures import FIGURES
from emmclab.pages.theme import LIGHT
from emmclab.runtime.files import folder_aside, move_into_place, to_csv, write_atomically
from emmclab.traces.profile import Profile

_process: subprocess.Popen[bytes] | None = None


def convert(function: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of vl-convert in the separate process.

    >>> convert("vegalite_to_svg", {"mark": "point", "data": {"values": [{}]}})[:4]
    '<svg'
    """
    global _process
    if _process is None:
        # The process runs in its own session, so that Ctrl-C does not reach it; it ends when its stdin is closed.
        command = [sys.executable, "-P", str(Path(__file__).with_name("vega_process.py"))]
        _process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    if _process.stdin is None or _process.stdout is None:
        raise EmmclabError("the process that draws charts has no open pipes", hint="run the same command again")
    try:
        pickle.dump((function, arguments, options), _process.stdin)
        _process.stdin.flush()
        refusal, answer = pickle.load(_process.stdout)  # noqa: S301 - pickled by the process started above
    except BaseException as error:
        _process.kill()
        _process.wait()
        _process = None
        if isinstance(error, (OSError, EOFError)):
            raise EmmclabError("the process that draws charts ended unexpectedly", hint="free some memory") from error
        raise
    if refusal is not None:
        raise EmmclabError(f"a chart could not be drawn: {refusal}", hint="leave out --figures and --html")
    return answer


@atexit.register
def _end() -> None:
    if _process is not None and _process.stdin is not None:
        _process.stdin.close()
        _process.wait()


#: Vega configuration for PDF files: other fonts than on the page, because they must be embeddable.
_PDF = {**LIGHT, "font": "Liberation Sans, DejaVu Sans, sans-serif"}
#: Width of a chart, pixels.
_WIDTH = 560


def write_charts(charts: Iterable[tuple[str, Chart, Rows]], folder: Path) -> int:
    """Write each chart (name, chart, rows) as SVG and PDF, and its rows as CSV; return the number of charts."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, chart, rows in charts:
        stem = re.sub(r"[^\w.-]+", "_", name)
        spec = specification(chart.properties(width=_WIDTH))
        write_atomically(folder / f"{stem}.svg", convert("vegalite_to_svg", spec, config=LIGHT))
        write_atomically(folder / f"{stem}.pdf", convert("vegalite_to_pdf", spec, config=_PDF))
        write_atomically(folder / f"{stem}.csv", to_csv(rows))
        count += 1
    return count


def write_figures(profiles: Sequence[Profile], folder: Path) -> int:
    """Write each figure of profiles to a folder; return the number of figures."""

    def charts() -> Iterable[tuple[str, Chart, Rows]]:
        for figure in FIGURES:
            rows = figure.rows(profiles)
            parts = [rows]
            if figure.each:
                parts = [[row for row in rows if row["trace"] == profile.name] for profile in profiles]
            for part in filter(figure.can_draw, parts):
                name = f"{figure.name}-{part[0]['trace']}" if figure.each else figure.name
                yield name, figure.draw(part), part

    return write_charts(charts(), folder)


#: JavaScript that makes `vegaEmbed` available to pages; it is bundled with the Vega libraries.
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def library() -> str:
    """Return the JavaScript library of the pages, which is created once and then cached.

    Raises:
        EmmclabError: the library cannot be created.

    >>> "vegaEmbed" in library()
    True
    """
    file = _cached_script()
    if (script := _read(file)) is not None:
        return script
    script = convert("javascript_bundle", _SNIPPET)
    # If the cache is not writable, the script is bundled again next time.
    if file is not None:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with folder_aside(file.parent) as aside:
                temporary = aside / file.name
                temporary.write_text(f"{_digest(script)}\n{script}", encoding="utf-8", newline="")
                move_into_place(temporary, file)
    return str(script)


def _cached_script() -> Path | None:
    """Return the path of the cached JavaScript library; None if the user has no cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(caches) if caches.startswith("/") else Path.home() / ".cache"
    except RuntimeError:
        return None
    return folder / "emmclab" / f"vega-{version('vl-convert-python')}.js"


def _read(file: Path | None) -> str | None:
    """Return the JavaScript library from a file; None if the file is missing or damaged."""
    if file is None:
        return None
    try:
        digest, _, script = file.read_bytes().decode().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return script if digest == _digest(script) else None


def _digest(script: str) -> str:
    return hashlib.sha256(f"{_SNIPPET}{script}".encode()).hexdigest()

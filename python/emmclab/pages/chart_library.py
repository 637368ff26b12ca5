"""The JavaScript library of the pages: Vega, Vega-Lite and vega-embed as one script.

vl-convert takes seconds to bundle it, and it is the same for every page of one version of vl-convert. It is
cached in the user's cache folder, with its digest; a missing or damaged copy is made again.
"""

import contextlib
import hashlib
import os
from importlib.metadata import version
from pathlib import Path

from emmclab.pages.plots.vega import convert
from emmclab.runtime.files import folder_aside, move_into_place

#: Code for pages in the bundle, besides the libraries themselves.
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def library() -> str:
    """Return the script.

    Raises:
        EmmclabError: bundling fails.

    >>> "vegaEmbed" in library()
    True
    """
    file = _cached_script()
    if (script := _read(file)) is not None:
        return script
    script = convert("javascript_bundle", _SNIPPET)
    # Without a writable cache, only time is lost.
    if file is not None:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with folder_aside(file.parent) as aside:
                made = aside / file.name
                made.write_text(f"{_digest(script)}\n{script}", encoding="utf-8", newline="")
                move_into_place(made, file)
    return str(script)


def _cached_script() -> Path | None:
    """Path of the cached script of this version; None if the user has no cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(caches) if caches.startswith("/") else Path.home() / ".cache"
    except RuntimeError:
        return None
    return folder / "emmclab" / f"vega-{version('vl-convert-python')}.js"


def _read(file: Path | None) -> str | None:
    """Return the script from a file; None if the file is damaged."""
    if file is None:
        return None
    try:
        digest, _, script = file.read_bytes().decode().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return script if digest == _digest(script) else None


def _digest(script: str) -> str:
    return hashlib.sha256(f"{_SNIPPET}{script}".encode()).hexdigest()

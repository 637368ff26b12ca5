"""Types of the options of a cell, in grids and in stored results."""

from pathlib import Path
from typing import Any, TypedDict

#: The options of a cell by name: `mode`, `capacity`, options of a run (`RUN_OPTIONS`), and those of its kind.
#: A profile has only percentiles.
CellOptions = dict[str, Any]


class ImageOptions(TypedDict, total=False):
    """Options for sharing preconditioned devices between runs; empty if they are not shared."""

    images: Path
    images_limit: int

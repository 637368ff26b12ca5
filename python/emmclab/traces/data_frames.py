"""Converts tables of other libraries to streams of requests, through the Arrow C interfaces."""

from collections.abc import Callable
from typing import Any, Protocol, cast

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.runtime.optional_libraries import EXTRAS, missing


class ArrowTable(Protocol):
    """A table that exports its columns: frames of polars and pandas, tables of pyarrow and DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table."""


def is_stream(table: object) -> bool:
    """Return whether a table can be read only once, because it is its own iterator."""
    return hasattr(table, "__next__") or hasattr(table, "read_next_batch")


def opener(table: ArrowTable, name: str) -> Callable[[], _core.Reader]:
    """Return a function that opens a table as a stream of batches, each time from its beginning.

    Raises:
        ConfigError: on opening, if this is not a table.
        UnsupportedError: on opening, if a library is missing.
    """
    # A frame has the methods of a reader, so that it can be used as one.
    return cast("Callable[[], _core.Reader]", lambda: _frame(table, name))


def _frame(table: Any, name: str) -> _core.Frame:
    if not (hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__")):
        lazy = hasattr(table, "collect")
        raise ConfigError(
            f"a {type(table).__name__} is not a table of Arrow columns",
            field="table",
            hint="call its `collect()` first" if lazy else "give a frame of polars or pandas, or a table of pyarrow",
        )
    try:
        return _core.Frame(table, name)
    except ImportError as error:
        # pandas exports Arrow streams only with pyarrow.
        if error.name in EXTRAS:
            raise missing(error.name) from error
        raise
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError) or hasattr(error, "kind"):
            raise
        raise ConfigError(
            f"this table cannot be handed over as Arrow columns: {error}",
            field="table",
            hint="give columns of whole numbers and text",
        ) from error

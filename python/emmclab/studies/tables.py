"""Converts the results of a study to flat rows of tables."""

import hashlib
import json
from collections.abc import Iterator

from emmclab.runtime.document import Row
from emmclab.runtime.parquet import Line, form_of, text_of
from emmclab.studies.flatten import flat, with_settings
from emmclab.studies.kinds import kind_of_cell
from emmclab.studies.stored_types import Entry, Run


class Digest:
    """A digest of results in order: the SHA-256 over the SHA-256 of each result."""

    def __init__(self) -> None:
        """Create the digest of an empty sequence of results."""
        self._hash = hashlib.sha256()

    def add(self, hashed: str) -> None:
        """Add the next result, given as the SHA-256 of its JSON."""
        self._hash.update(hashed.encode())

    @property
    def text(self) -> str:
        """Return the first 16 digits of the digest."""
        return self._hash.hexdigest()[:16]


def lines_of(entry: Entry) -> str:
    """Return the table rows of a result as text, one per line, in the form in which they are stored."""
    return "\n".join(f"{table} {form_of(row)} {text_of(row)}" for table, row in rows_of(entry))


def result_lines(text: str) -> tuple[str, list[Line]]:
    """Return the digest of a stored result and its table rows, from the stored text."""
    digest, *lines = text.split("\n")
    return digest, [Line(*line.split(" ", 2)) for line in lines]


def row_of_cell(text: str) -> tuple[str, Row]:
    """Return the table row of a single run of a study (cell) and the name of its table, from the stored text."""
    _, (line, *_) = result_lines(text)
    return line.table, json.loads(line.row)


def rows_of(entry: Entry) -> Iterator[tuple[str, Row]]:
    """Yield the table rows of a result, each with the name of its table; the row of the whole result comes first."""
    cell = entry["cell"]
    if "failed" in entry:
        yield "failures", with_settings(flat({**cell, **entry["failed"]}), cell)
        return
    yield from kind_of_cell(cell["grid"], cell.get("options")).rows(cell, entry["result"])


def stop_of(run: Run) -> str | None:
    """Return the reason why the device of a run stopped before the end of the trace; None if it did not.

    >>> stop_of(Run({"run": {"stopped": "the device is full"}}))
    'the device is full'
    """
    return run.run.stopped

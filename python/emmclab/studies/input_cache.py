"""Keeps inputs in memory from cell to cell."""

import functools
from collections.abc import Iterator

from emmclab import _core
from emmclab.studies.input import Input
from emmclab.traces.trace import Header, Ledger, Trace

#: Maximum number of requests of an input that is kept in memory from cell to cell.
_HELD_REQUESTS = 2_000_000


class _CachedTrace:
    """A trace in memory, as a stream that can be opened again without generating or reading it again."""

    def __init__(self, batches: list[_core.Batch], header: Header, ledger: Ledger) -> None:
        self._batches, self._header, self._ledger = batches, header, ledger
        self._next: Iterator[_core.Batch] = iter(batches)

    def next(self) -> _core.Batch | None:
        return next(self._next, None)

    def header(self) -> Header:
        return self._header

    def ledger(self) -> Ledger:
        return self._ledger

    def progress(self) -> tuple[int, int | None]:
        return 0, None


@functools.lru_cache(maxsize=1)
def open_cached(source: Input) -> Trace:
    """Open an input and keep it in memory if it is small enough.

    A trace of several devices is rejected, because its addresses are not of one address space.
    """
    trace = source.open()
    batches: list[_core.Batch] = []
    requests = 0
    for batch in trace.batches(one_device=True):
        requests += len(batch)
        if requests <= _HELD_REQUESTS:
            batches.append(batch)
    if requests > _HELD_REQUESTS:
        return trace
    header, ledger = trace.header, trace.ledger
    return Trace(trace.name, lambda: _CachedTrace(batches, header, ledger))  # type: ignore[arg-type, return-value]

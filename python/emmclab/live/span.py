"""The part of a recorded trace that the result of a served device counts."""

from __future__ import annotations

from pathlib import Path

from emmclab.traces.reading import read


def keep_from(path: Path, at_s: float) -> None:
    """Leave out of a trace what arrived before a time on the clock of the device.

    The times of the other requests are unchanged, and the ledger counts those that are left out. The file is
    replaced when the new one is whole.
    """
    first_ns = next((row["arrival_ns"] for batch in read(path).batches() for row in batch.rows(1)), None)
    if first_ns is None or first_ns >= at_s * 1e9:
        return
    after_s = at_s - first_ns / 1e9
    read(path, only=[f"from={after_s:.9f}s"]).write(path)

"""Describes the ledger of a reader: the number of records of a file by their treatment."""

from collections.abc import Mapping

from emmclab import _core


def ledger_line(ledger: Mapping[str, int | None]) -> str:
    """Return the ledger in one line.

    >>> ledger_line({"seen": 5702, "kept": 5702, "skipped": 0, "headers_stripped": 1155, "reissued": None})
    '5,702 seen, 5,702 kept, 1,155 headers stripped'
    """
    labels = _core.ledger_labels()
    first = [f"{ledger[field]:,} {field}" for field in ("seen", "kept")]
    rest = [f"{count:,} {labels[field]}" for field, count in ledger.items() if count and field not in ("seen", "kept")]
    return ", ".join(first + rest)

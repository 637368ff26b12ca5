"""The type of a request, as `Trace.rows` returns it."""

from typing import NotRequired, TypedDict


class RequestRow(TypedDict):
    """A request: times in ns, addresses and sizes in sectors; unknown times and names are None.

    In a trace with block notes, the keys from `role` on contain lists with an entry for each run of blocks.
    """

    arrival_ns: int
    start_ns: int | None
    issue_ns: int | None
    served_ns: int | None
    complete_ns: int | None
    sector: int
    sectors: int
    op: str
    flags: list[str]
    pid: int | None
    process: str | None
    device: str | None
    role: NotRequired[list[str]]
    role_sectors: NotRequired[list[int]]
    home_sector: NotRequired[list[int | None]]
    changed_sectors: NotRequired[list[int | None]]
    transaction: NotRequired[list[int | None]]

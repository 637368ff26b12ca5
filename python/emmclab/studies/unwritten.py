"""What runs of a study read although neither their trace nor a preconditioning wrote it: how much, and where."""

from collections.abc import Iterable, Sequence

from emmclab.runtime.document import Cells, TextTable
from emmclab.runtime.lists import joined
from emmclab.studies.stored_types import Run

#: Title of the table on a page.
TITLE = "Data that nobody wrote"


def _range(values: Sequence[float]) -> str:
    least, most = (f"{of(values):.0f}" for of in (min, max))
    return f"{least} %" if least == most else f"{least} to {most} %"


def _cells(runs: Sequence[Run]) -> list[str] | None:
    """Return the shares of requests and bytes read, the pages, and what they decide; None if all data was written."""
    reading = [run.map for run in runs if "map" in run and run.map.unwritten_request_pct is not None]
    requests = [of_run.unwritten_request_pct or 0.0 for of_run in reading]
    if not any(requests):
        return None
    bytes_by_kb: dict[int, int] = {}
    for of_run in reading:
        for pages in of_run.unwritten_pages:
            bytes_by_kb[pages["page_kb"]] = bytes_by_kb.get(pages["page_kb"], 0) + pages["bytes_read"]
    total = sum(bytes_by_kb.values())
    sizes = [f"{kb} KB ({100 * count / total:.0f} %)" for kb, count in sorted(bytes_by_kb.items())]
    decides = ["whether its map entries are missing"] if any(of_run.lookups for of_run in reading) else []
    if len(sizes) > 1:
        decides.append("its page size")
    if sizes:
        decides.append("its planes (those of large writes in order of address)")
    read = [of_run.unwritten_read_pct or 0.0 for of_run in reading]
    return [_range(requests), _range(read), ", ".join(sizes) or "none", joined(decides) or "that it takes no time"]


def unwritten_text(runs: Iterable[Run]) -> str:
    """Describe what runs read although nobody wrote it, and what the model decides for it; empty if nothing."""
    cells = _cells(list(runs))
    if cells is None:
        return ""
    requests, read, pages, decides = cells
    return (
        f"{requests} of the read requests of a run touch data that nobody wrote ({read} of the bytes read), in pages "
        f"of {pages}: the model decides {decides}, which the traces do not tell."
    )


def unwritten_table(runs: Iterable[Run]) -> TextTable | None:
    """Return a table of such reads by grid and device of a study; None if there are none."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.grid, run.device), []).append(run)
    rows: list[Cells] = [[*names, *cells] for names, of_group in groups.items() if (cells := _cells(of_group))]
    headings = ["Grid", "Device", "Read requests", "Bytes read", "Pages", "The model decides"]
    return TextTable(TITLE, headings, rows, words=6) if rows else None

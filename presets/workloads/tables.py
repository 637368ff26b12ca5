"""The published rows of the workloads, and whole numbers that agree with them."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PUBLISHED = Path(__file__).parents[1] / "published"

#: Characteristic 2 is about 15 of the 18 applications; these are the others.
OTHERS = {"Movie": 15.0, "Booting": 30.0, "CameraVideo": 35.0}
#: Durations in s for rows with contradictory printed figures (see README.md).
DURATIONS = {"GoogleMaps": 1712.0, "Amazon": 819.0}


@dataclass(frozen=True)
class Row:
    """An application's rows of Tables III and IV, as text."""

    name: str
    sizes: dict[str, str]
    times: dict[str, str]

    @property
    def combo(self) -> bool:
        """Whether it is two applications at once."""
        return self.sizes["kind"] == "combo"

    def number(self, column: str) -> float:
        """Return a figure by its column."""
        return float(self.sizes.get(column) or self.times[column])


@dataclass(frozen=True)
class Totals:
    """Whole numbers that agree with a row: requests, KB, seconds; writes among them."""

    requests: int
    kb: int
    duration_s: float
    writes: int
    written_kb: int


def rows() -> list[Row]:
    """Return the published rows, in the paper's order."""

    def table(name: str) -> list[dict[str, str]]:
        with (PUBLISHED / name).open(newline="") as file:
            return list(csv.DictReader(file))

    times = {row["application"]: row for row in table("iiswc15_table4_timing.csv")}
    sizes = table("iiswc15_table3_size.csv")
    return [Row(row["application"], row, times[row["application"]]) for row in sizes]


def small_shares(all_rows: Iterable[Row]) -> dict[str, float]:
    """Return the percentage of 4 KB requests by rank of mean size, in the range of Characteristic 2."""
    individual = [row for row in all_rows if not row.combo and row.name not in OTHERS]
    individual.sort(key=lambda row: row.number("data_size_kb") / row.number("requests"))
    last = len(individual) - 1
    shares = {row.name: 57.4 - (57.4 - 44.9) * i / last for i, row in enumerate(individual)}
    for row in all_rows:
        if row.combo:
            shares[row.name] = 52.0 if row.name == "FB/Msg" else 55.0 if row.name[0] == "M" else 50.0
    return shares | OTHERS


def solve(row: Row) -> Totals:
    """Return the whole numbers that are closest to all printed figures."""
    kb, requests = int(row.number("data_size_kb")), int(row.number("requests"))
    printed_s, arrivals, accesses = map(row.number, ("duration_s", "arrival_rate_per_s", "access_rate_kb_per_s"))
    low = max(printed_s - 0.5, kb / (accesses + 0.005))
    high = min(printed_s + 0.5, kb / (accesses - 0.005))
    if row.combo:
        duration = round((low + high) / 2, 2)
        requests = round(arrivals * duration)
    elif row.name in DURATIONS:
        duration = DURATIONS[row.name]
    else:
        lower, upper = max(low, requests / (arrivals + 0.005)), min(high, requests / (arrivals - 0.005))
        if lower <= upper:
            low, high = lower, upper
        duration = round((low + high) / 2, 2) if low <= high else printed_s
    write_pct, written_pct = row.number("write_requests_pct"), row.number("written_bytes_pct")
    around_writes, around_kb = round(requests * write_pct / 100), round(kb * written_pct / 100 / 4) * 4

    def beyond(value: float, printed: float) -> float:
        return max(0.0, printed - value, value - (printed + 0.499)) / printed

    best: tuple[float, int, int] | None = None
    for writes in range(around_writes - 3, around_writes + 4):
        for written in range(around_kb - 400, around_kb + 404, 4):
            reads = requests - writes
            if reads <= 0 or writes <= 0:
                continue
            cost = 1000 * (
                beyond((kb - written) / reads, row.number("mean_read_kb"))
                + beyond(written / writes, row.number("mean_write_kb"))
            )
            cost += abs(100 * writes / requests - write_pct) + abs(100 * written / kb - written_pct)
            if best is None or cost < best[0]:
                best = (cost, writes, written)
    if best is None:
        raise ValueError(f"{row.name}: no numbers agree with the tables")
    return Totals(requests, kb, duration, best[1], best[2])

"""Cells that profile an input; they belong to no grid and have no device."""

from collections.abc import Iterator, Mapping

from emmclab.runtime.table_row import Row
from emmclab.studies.flatten import flat, percentile_columns
from emmclab.studies.input_cache import open_cached
from emmclab.studies.kinds.kind import CellKind, Work
from emmclab.studies.stored_types import CellFields

#: Name of these cells in place of a grid's name.
PROFILE = "profile"
#: Figures of profiles that become their own tables.
_FIGURES = (
    "throughput_by_size",
    "size_distribution",
    "response_distribution",
    "inter_arrival_distribution",
    "reuse_distance",
)


class Profiles(CellKind):
    """Profiles of inputs."""

    tables = ("profiles", *_FIGURES)

    def run(self, work: Work) -> Mapping[str, object]:
        """Profile the input."""
        return open_cached(work.input).profile(percentiles=work.options.get("percentiles")).to_dict()

    def rows(self, cell: CellFields, result: Row) -> Iterator[tuple[str, Row]]:
        """Yield the row of the profile, then the rows of its figures."""
        shown = {name: value for name, value in result.items() if name not in ("name", "figures")}
        chosen = [{"op": row["op"], **one} for row in result["by_operation"] for one in row.get("percentiles", ())]
        yield "profiles", flat({**cell, **shown}) | percentile_columns(chosen)
        for name in _FIGURES:
            for row in result["figures"][name]:
                yield name, {"input": cell["input"], "seed": cell["seed"], **row}

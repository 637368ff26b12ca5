"""Data frames as traces: the columns that `to_*` returns, streaming, and an error that names each fault."""

import itertools
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow
import pytest

import emmclab
from emmclab import ConfigError, FormatError, Trace, UnsupportedError

FROM = {"arrow": Trace.from_arrow, "polars": Trace.from_polars, "pandas": Trace.from_pandas}


def frame(**changes: Any) -> dict[str, Any]:
    """Return three writes and a flush, with changes."""
    columns: dict[str, Any] = {
        "arrival_ns": [0, 1_000_000, 2_000_000, 3_000_000],
        "sector": [0, 8, 16, 0],
        "sectors": [8, 8, 8, 0],
        "op": ["write", "write", "read", "flush"],
    }
    return {name: values for name, values in {**columns, **changes}.items() if values is not None}


@pytest.mark.parametrize("library", FROM)
def test_a_frame_gives_the_trace_that_it_was_made_from(library: str, trace: Path) -> None:
    original = emmclab.read(trace)
    again = FROM[library](getattr(original, f"to_{library}")(), "again")
    assert list(again.rows(400)) == list(original.rows(400))
    assert again.name == "again"
    assert (again.ledger["seen"], again.ledger["kept"]) == (400, 400)
    assert (again.header["source"], again.header["format"]) == ("again", "arrow")
    one, other = again.profile(), original.profile()
    for field in ("requests", "duration_s", "mean_response_ms", "temporal_locality_pct", "no_wait_pct"):
        assert one[field] == other[field], field


@pytest.mark.parametrize("library", FROM)
def test_the_needed_columns_are_enough(library: str) -> None:
    tables = {"arrow": pyarrow.table, "polars": polars.DataFrame, "pandas": pandas.DataFrame}
    made = FROM[library](tables[library](frame()))
    assert made.profile()["requests"] == 3
    assert made.rows(4)[3]["op"] == "flush"
    assert made.repeated(2).ledger["kept"] == 8
    assert emmclab.combine([made, made]).ledger["kept"] == 8
    assert emmclab.Device.preset("nexus5").simulate(made)["requests"]["total"] == 4


def test_names_may_be_categories_of_which_some_are_not_used() -> None:
    table = polars.DataFrame(frame(process=["a", "b", None, "a"])).with_columns(
        polars.col("op").cast(polars.Enum(["nonsense", "flush", "read", "write"])),
        polars.col("process").cast(polars.Categorical),
    )
    rows = Trace.from_polars(table).rows()
    assert [row["op"] for row in rows] == ["write", "write", "read", "flush"]
    assert [row["process"] for row in rows] == ["a", "b", None, "a"]
    categories = pandas.DataFrame(frame()).astype({"op": "category"})
    assert Trace.from_pandas(categories).rows()[2]["op"] == "read"


def test_a_large_frame_is_streamed_without_copies_of_its_numbers() -> None:
    rows = 100_000
    arrow = pyarrow.table(
        {
            "arrival_ns": pyarrow.array(range(rows), pyarrow.int64()),
            "sector": pyarrow.array([8] * rows, pyarrow.uint64()),
            "sectors": pyarrow.array([8] * rows, pyarrow.uint32()),
            "op": pyarrow.array(["write"] * rows),
        }
    )
    source = arrow["sector"].chunk(0).buffers()[1]
    batches = list(itertools.islice(Trace.from_arrow(arrow).batches(), 3))
    for batch in batches:
        shared = pyarrow.record_batch(batch)["sector"].buffers()[1]
        assert source.address <= shared.address < source.address + source.size
    assert all(len(batch) < rows / 10 for batch in batches)


@pytest.mark.parametrize("needed", ["arrival_ns", "sector", "sectors", "op"])
def test_a_missing_column_is_named_with_what_it_holds(needed: str) -> None:
    with pytest.raises(FormatError, match=f"`{needed}`.* missing") as caught:
        Trace.from_polars(polars.DataFrame(frame(**{needed: None})))
    assert caught.value.field == needed
    assert "needed are arrival_ns, sector, sectors and op" in str(caught.value.hint)


@pytest.mark.parametrize("found", ["arrival", "arrival_us", "Arrival_Time"])
def test_a_column_in_another_unit_is_named(found: str) -> None:
    columns = frame()
    with pytest.raises(FormatError, match=f"field `{found}`.*`arrival_ns` is") as caught:
        Trace.from_polars(polars.DataFrame({found: columns.pop("arrival_ns"), **columns}))
    assert "rename it to `arrival_ns`" in str(caught.value.hint)
    assert " ns " in str(caught.value.hint)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("arrival_ns", [0.0, 1.5, 2.0, 3.0]),
        ("sector", ["0", "8", "16", "0"]),
        ("op", [0, 1, 0, 1]),
        ("complete_ns", [1.0, None, 3.0, 4.0]),
    ],
)
def test_a_column_of_another_type_is_named_with_its_type(column: str, values: list[Any]) -> None:
    with pytest.raises(FormatError, match=f"`{column}`.*cannot have") as caught:
        Trace.from_pandas(pandas.DataFrame(frame(**{column: values})))
    assert "give " in str(caught.value.hint)


@pytest.mark.parametrize(
    ("changes", "row", "said"),
    [
        ({"sector": [0, 8, None, 0]}, 3, "has no value"),
        ({"op": ["write", None, "read", "read"]}, 2, "has no value"),
        ({"op": ["write", "write", "reed", "read"]}, 3, "`reed`: is not an operation"),
        ({"sectors": [8, -8, 8, 0]}, 2, "`sectors`: .*UInt32"),
        ({"sectors": [8, 0, 8, 0]}, 2, "without data"),
        ({"arrival_ns": [0, 5, 4, 6]}, 3, "arrives before the request in front of it"),
        ({"complete_ns": [1, 1_000_001, 1_999_999, 3_000_001]}, 3, "earlier"),
    ],
)
def test_an_impossible_value_is_named_with_its_row(changes: dict[str, Any], row: int, said: str) -> None:
    table = polars.DataFrame(frame(**changes))
    made = Trace.from_polars(table, "mine")
    with pytest.raises(FormatError, match=said) as caught:
        _ = made.ledger
    assert (caught.value.line, caught.value.file) == (row, "mine")


def test_the_row_of_a_fault_counts_from_the_first_of_the_frame() -> None:
    rows = 20_000
    arrivals = list(range(rows))
    arrivals[15_000] = 0
    table = polars.DataFrame(
        {"arrival_ns": arrivals, "sector": [0] * rows, "sectors": [8] * rows, "op": ["write"] * rows}
    )
    with pytest.raises(FormatError, match="arrives before the request in front of it") as caught:
        _ = Trace.from_polars(table).ledger
    assert caught.value.line == 15_001


def test_columns_that_are_left_out_are_named_in_the_header() -> None:
    table = pandas.DataFrame(frame(latency=[1, 2, 3, 4]), index=[4, 5, 6, 7])
    assert Trace.from_pandas(table).header["note"] == "columns left out: latency"
    assert Trace.from_pandas(pandas.DataFrame(frame())).header["note"] is None


def test_an_empty_frame_is_no_trace() -> None:
    with pytest.raises(FormatError, match="no request"):
        _ = Trace.from_polars(polars.DataFrame(frame()).clear()).ledger


def test_what_is_no_table_is_refused() -> None:
    for wrong in (frame(), [1, 2], "trace.csv"):
        with pytest.raises(ConfigError, match="not a table"):
            Trace.from_arrow(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as lazy:
        Trace.from_polars(polars.DataFrame(frame()).lazy())  # type: ignore[arg-type]
    assert "collect" in str(lazy.value.hint)


def test_a_stream_can_be_read_once() -> None:
    table = pyarrow.table(frame())
    stream = Trace.from_arrow(table.to_reader())
    assert stream.profile()["requests"] == 3
    assert "Trace" in stream._repr_html_()
    with pytest.raises(UnsupportedError, match="cannot be read twice"):
        stream.profile()

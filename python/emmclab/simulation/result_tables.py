"""The tables that show the result of a run: figures, the link of a UFS, layers, and a second device."""

from collections.abc import Iterable, Mapping
from typing import Any

from emmclab.core_types import ResponsePercentileRow, UfsUse
from emmclab.runtime.document import Cells, Column, TextTable, number_cell
from emmclab.runtime.notebook import heading_html, table_html
from emmclab.simulation.result import DURABILITY, Result, second_figures, ufs_figures
from emmclab.simulation.result_fields import ResultField, layer_field, result_field, shown_fields
from emmclab.simulation.result_text import completion, device_before, mode_line, without_slc
from emmclab.traces.profile_options import percentile_label

#: The figures of a run, in the order of every output.
FIGURES = shown_fields(
    (
        "response.mean_response_ms",
        "response.p50_ms",
        "response.p99_ms",
        "service.mean_service_ms",
        "response.read.mean_ms",
        "response.write.mean_ms",
        "requests.no_wait_pct",
        *DURABILITY,
        "run.throughput_mb_per_s",
        "space.space_utilisation",
        "write_amplification.waf",
        "flash.page_reads.total",
        "flash.page_programs.total",
        "flash.block_erases",
        "gc.blocks",
        "energy.total_mj",
        "run.simulated_s",
    )
)
#: Field of the 99th percentile, whose unit and format all percentiles use.
_P99 = result_field("response.p99_ms")
#: Percentiles that are shown unless the user requests other percentiles.
_USUAL_PERCENTILES = ("response.p50_ms", _P99.path)


#: Heading of the column with the names of figures; the terminal leaves it empty.
NAME_OF_FIGURE = Column("Figure", short="")


def figures_table(title: str, figures: Iterable[tuple[ResultField, float | None]]) -> TextTable:
    """Return a table with a row for each figure: label, value and unit."""
    return _table(title, [_row(field, value) for field, value in figures])


def _table(title: str, rows: list[Cells]) -> TextTable:
    return TextTable(title, [NAME_OF_FIGURE, "Value", Column("Unit", is_text=True)], rows)


def _row(field: ResultField, value: float | None) -> Cells:
    return [field.label, field.text(value), field.display_unit]


def requested_percentiles(result: Result) -> list[ResponsePercentileRow]:
    """Return the requested percentiles of reads and writes together."""
    return [row for row in result.percentiles if row.op == "all"]


def run_table(result: Result) -> TextTable:
    """Return the table of a run's figures; requested percentiles replace the usual ones."""
    chosen = [
        [f"{percentile_label(row.percentile)} response", _P99.text(row.response_ms), _P99.unit]
        for row in requested_percentiles(result)
    ]
    total = result_field("requests.total")
    rows: list[Cells] = [_row(total, result.measured(total.path))]
    for field in FIGURES:
        if not chosen or field.path not in _USUAL_PERCENTILES:
            rows.append(_row(field, result.measured(field.path)))
        elif field.path == _USUAL_PERCENTILES[0]:
            rows += chosen
    if (drain_s := result.run.drain_s) is not None:
        rows.append(_row(result_field("run.drain_s"), drain_s))
    parallel = f"parallelism {result.configuration.parallelism}"
    title = f"{result.device}: {parallel}, writes complete {completion(result)}"
    return _table(title, [*rows, *_life_rows(result)])


def response_table(result: Result) -> TextTable:
    """Return the table of the response times of reads and writes, together and by operation."""
    rows: list[Cells] = []
    for op, name in (("", "all"), ("read.", "reads"), ("write.", "writes")):
        paths = ("mean_ms" if op else "mean_response_ms", "p50_ms", "p99_ms", "max_ms")
        count = result[f"requests.{op.rstrip('.') or 'total'}"]
        times = [result.measured(f"response.{op}{path}") for path in paths]
        rows.append([name, number_cell(count), *map(_P99.cell, times)])
    statistics = [Column(label, _P99.unit) for label in ("Mean", "Median", "p99", "Longest")]
    return TextTable("Response times", ["Requests", "Count", *statistics], rows)


def result_html(result: Result) -> str:
    """Return the tables of a run for notebooks."""
    tables = [response_table(result), run_table(result), *part_tables(result)]
    run = f"{result.trace} on {result.run_name}: {mode_line(result)}; {device_before(result)}"
    return heading_html("Result", run) + "".join(map(table_html, tables))


def _life_rows(result: Result) -> list[Cells]:
    """Return table rows for the device's lifetime, if the run erased blocks, and for the wear of each kind of block."""
    rows: list[Cells] = []
    if (life := result.wear.lifetime) and (host_bytes := life.even_host_bytes) is not None:
        field, left_out = result_field("wear.lifetime.even_host_bytes"), without_slc(result)
        unit = f"{field.display_unit} written by the host{left_out and f' {left_out}'}"
        rows.append([field.label, field.text(host_bytes), unit])
    used = result_field("wear.lifetime.used_pct")
    for kind in result.wear.kinds:
        if not kind.most_erases:
            continue
        label = f"{used.label}, {kind.kind}"
        counts = f"{kind.mean_erases:,.1f} erases on average, {kind.most_erases:,} at most"
        if kind.used_pct is None:
            rows.append([label, "–", f"no erase limit; {counts}"])
        else:
            unit = f"% of {kind.erase_limit:,} erases, most worn block; {counts}"
            rows.append([label, used.text(kind.used_pct), unit])
    return rows


def part_tables(result: Result) -> list[TextTable]:
    """Return the tables that only some runs have: the link of a UFS, layers, a second device."""
    tables = [_link_table(ufs)] if (ufs := result.ufs) else []
    tables += map(_layer_table, result.layers)
    if second := result.second_device:
        tables.append(figures_table(f"Second device: {second.device}", second_figures(second)))
    return tables


def _link_table(ufs: UfsUse) -> TextTable:
    """Return the table of a UFS device's link, queues, WriteBooster and hibernation."""
    lanes = f"{ufs.lanes} lane{'s' if ufs.lanes > 1 else ''} of {ufs.gear.replace('_', '-').upper()}"
    title = f"Link of {lanes}, {ufs.link_mb_per_s:,.0f} MB/s each way; {ufs.tags} tags"
    return figures_table(title, ufs_figures(ufs))


def _layer_table(layer: Mapping[str, Any]) -> TextTable:
    """Return the table of a layer's counts, and a note on settings that the device below does not support."""
    counts = [(layer_field(name), value) for name, value in layer.items() if name not in ("name", "left_out")]
    disabled = [f"{setting} disabled; this device does not support it" for setting in layer.get("left_out", ())]
    return figures_table(f"Layer: {layer['name']}", counts)._replace(caption="\n".join(disabled))

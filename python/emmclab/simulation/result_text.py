"""Sentences on the result of simulated runs and on the reasons not to trust it, and the tables that show a result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from emmclab.core_types import RefusedRequests, ResponsePercentileRow, SettingChange, UfsUse
from emmclab.runtime.document import Cells, Column, TextTable, duration, heading_html, number_cell, signed, table_html
from emmclab.runtime.lists import joined
from emmclab.simulation.fio_figures import fio_headline
from emmclab.simulation.result import DURABILITY, Result, second_figures, ufs_figures
from emmclab.simulation.result_fields import ResultField, layer_field, result_field, shown_fields
from emmclab.traces.profile_options import percentile_label

#: Figures in the sentence that summarises a result.
_MEAN, _P99 = map(result_field, ("response.mean_response_ms", "response.p99_ms"))

#: Results of an open loop are misleading if more than this percentage of requests arrive within 1 ms after the device
#: became idle.
DEPENDENT_PCT = 25.0
#: Percentage of requests whose addresses were wrapped into a smaller device, above which a warning is printed.
_MUCH_WRAPPED_PCT = 5.0
#: Load that an overloaded run should have at the proposed rate, as a share of the maximum load of the device.
_COMFORTABLE = 0.8
#: Maximum backlog that counts as a burst, as a share of the time in which requests arrive. The Rust core uses the same
#: limit.
_BURST_SHARE = 0.1
#: Maximum backlog that counts as a burst, in seconds. A burst must not exceed `_BURST_SHARE` either.
_BURST_S = 10.0
#: Median lateness of completions, as a share of the mean response time, above which a warning is printed.
_MUCH_LATE = 0.25


def headline(result: Result) -> str:
    """Return a sentence with the mean response time of a run, compared with the recorded one if there is one.

    >>> import emmclab
    >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
    >>> headline(result).startswith("mean response ") and ", recorded " in headline(result)
    True
    """
    if not result.requests.total:
        return "no request was served"
    if not result.timed():
        return "no read or write was served"
    if result.fio:
        return fio_headline(result)
    mean, recorded = result.response.mean_response_ms, result.recorded.response.all
    if recorded.recorded_ms is None:
        p99 = f"{_P99.short} {_P99.in_words(result.response.p99_ms)}"
        # A served device has no recorded response times, so the text does not mention that they are missing.
        unknown = "" if result.live else "; no response times are recorded"
        return f"{mean_text(mean)}, {p99}{unknown}"
    return recorded_mean_text(mean, recorded.recorded_ms, recorded.error_pct)


def recorded_mean_text(simulated_ms: float, recorded_ms: float, error_pct: float | None) -> str:
    """Return a text with a simulated mean response time, compared with the recorded one.

    >>> recorded_mean_text(1.9, 1.883, 0.9)
    'mean response 1.90 ms, recorded 1.88 ms (+0.9 %)'
    """
    error = "" if error_pct is None else f" ({signed(error_pct)} %)"
    return f"{mean_text(simulated_ms)}, recorded {_MEAN.in_words(recorded_ms)}{error}"


def without_slc(result: Result) -> str:
    """Return a note that a lifetime excludes SLC blocks because no limit is set for them; empty if not needed.

    >>> import emmclab
    >>> without_slc(emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0])))
    ''
    """
    provenance = result.provenance
    devices = provenance.get("devices", ()) if provenance else ()
    slc = devices[0]["settings"]["slc"] if devices else {}
    is_unknown = slc.get("mode", "off") != "off" and not slc.get("erase_limit")
    return "without the SLC blocks, whose slc.erase_limit is not set" if is_unknown else ""


def trusted(result: Result) -> bool:
    """Return whether a run served its trace to the end, and kept up with the arriving requests."""
    return not result.run.stopped and not result.run.load.overloaded


#: Operations and flags that make writes durable (names as in `run.unrecorded`), with their names in texts.
_DURABLE = {"flush": "flushes", "preflush": "preflushes", "fua": "FUA"}
#: Percentage of the bytes read that were not written before, above which a note is printed.
_MUCH_UNWRITTEN_PCT = 5.0


def durability_unknown(result: Mapping[str, Any], remedy: str = "--flush-every 8") -> str:
    """Return a note, with a remedy, that a trace lacks the flushes or FUA that make writes durable; else empty.

    >>> durability_unknown({"run": {"unrecorded": "discard fua"}, "options": {}}).partition(",")[0]
    'the trace does not record FUA'
    >>> durability_unknown({"run": {"unrecorded": "fua"}, "options": {"flush_every": 8}})
    ''
    """
    unrecorded = (result["run"].get("unrecorded") or "").split()
    missing = [words for name, words in _DURABLE.items() if name in unrecorded]
    if not missing or result["options"].get("flush_every"):
        return ""
    adds = f"; {remedy} adds a flush after every 8 writes" if remedy else ""
    return f"the trace does not record {joined(missing)}, so that durability is free with a volatile cache{adds}"


def _coarse_clock(result: Result) -> str:
    """Return a warning that arrivals or think times were recorded with a coarse clock; empty for a fine clock."""
    run = result.run
    name = {"open": "arrivals", "closed": "think times"}.get(run.mode)
    if run.coarse_clock is None or name is None:
        return ""
    return (
        f"the {name} are coarse: the clock of the trace has steps of {run.coarse_clock}, longer than a "
        "usual response, so that queues and waits in this run are not those of the application; "
        "use --mode back_to_back to measure the device"
    )


def trace_warnings(result: Result) -> list[str]:
    """List the warnings about missing information in the trace, which do not depend on the seed."""
    return [text for text in (durability_unknown(result) if is_buffered(result) else "", _coarse_clock(result)) if text]


def unwritten_note(result: Result) -> str:
    """Return a note on reads of data that was never written, and how they are modelled; empty if they are few."""
    if (share := result.map.unwritten_read_pct or 0.0) <= _MUCH_UNWRITTEN_PCT:
        return ""
    return (
        f"{share:.0f} % of the bytes read had been written neither by the trace nor before the run; "
        "the model reads them as set by mapping.unwritten_read (flash: as if written in order of address); "
        "--precondition sequential:100 writes them first"
    )


def ended_early(result: Result) -> str:
    """Return a warning that a run ended early; empty if it did not."""
    if not (reason := result.run.stopped):
        return ""
    return f"ended early, after {result.requests.total:,} requests: {reason}"


def much_wrapped(result: Result) -> str:
    """Return a warning that many addresses were wrapped to fit a smaller device; empty if few were."""
    if (wrapped := result.requests.wrapped_pct) <= _MUCH_WRAPPED_PCT:
        return ""
    return (
        f"{wrapped:.1f} % of the requests lie beyond the {result.device} device and were wrapped into it: "
        "distant addresses share pages, which changes overwrites and write amplification; take a larger device"
    )


def warnings(result: Result) -> list[str]:
    """List the reasons not to trust the figures of a run, most severe first.

    >>> import emmclab
    >>> warnings(emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0])))
    []
    """
    texts = []
    if (live := result.live) and live.refused:
        failed = f"{live.failed:,} request{'s' if live.failed != 1 else ''} failed"
        texts.append(f"{failed}; zones do not allow {refusals_text(live.refused)}")
    if text := _much_late(result):
        texts.append(text)
    if text := ended_early(result):
        texts.append(text)
    if (lie := result.configuration.lies) != "none":
        texts.append(f"this device breaks a promise on purpose: cache.lies = {lie}")
    if changes := result.setting_changes:
        texts.append(f"settings changed during the run: {changes_line(changes)}")
    load, recorded = result.run.load, result.recorded
    completions = recorded.response.all.recorded_ms is not None
    closed = "--mode closed" if completions and not result.run.coarse_clock else ""
    if load.overloaded:
        texts.append(_overload(result, closed))
    if wrapped := much_wrapped(result):
        texts.append(wrapped)
    texts += trace_warnings(result)
    dependent = recorded.dependent_pct
    if result.run.mode == "open" and dependent is not None and dependent > DEPENDENT_PCT:
        texts.append(
            f"open loop, but {dependent:.0f} % of the recorded requests come within 1 ms of the device "
            "going idle: they seem to wait for it, which open loop ignores; use --mode closed"
        )
    return texts


def warnings_by_text(results: Sequence[Result]) -> list[tuple[str, str]]:
    """Return each warning about runs, with the names of the runs that it concerns.

    >>> import emmclab
    >>> warnings_by_text([emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))])
    []
    """
    return by_text(results, warnings)


def notes_by_text(results: Sequence[Result]) -> list[str]:
    """Return the notes on runs. If there are several runs, a note names the runs to which it applies."""
    notes = by_text(results, lambda result: [unwritten_note(result)])
    return [f"{runs}: {text}" if len(results) > 1 else text for runs, text in notes if text]


def by_text(results: Sequence[Result], texts: Callable[[Result], Iterable[str]]) -> list[tuple[str, str]]:
    """Return each different text about runs, with the names of the runs that it concerns."""
    runs: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for text in texts(result):
            names = runs.setdefault((result.trace, text), [])
            names += [] if result.run_name in names else [result.run_name]
    return [(f"{trace} on {', '.join(names)}", text) for (trace, text), names in runs.items()]


def refusals_text(refused: Sequence[RefusedRequests]) -> str:
    """Return how many requests a served device refused, by the rule that they violate.

    >>> counts = {"requests": 2, "first": "zone 7 is full"}, {"requests": 1, "first": "too long"}
    >>> refusals_text([*map(RefusedRequests, counts)])
    '2 (the first: zone 7 is full), 1 (too long)'
    """
    return ", ".join(f"{row.requests:,} ({'the first: ' if row.requests > 1 else ''}{row.first})" for row in refused)


def lateness(result: Result) -> str:
    """Return how late a served device sent completions; empty if its clock does not follow real time."""
    live = result.live
    if live is None or live.late_p50_us is None or live.late_p99_us is None:
        return ""
    return (
        f"completions were sent {duration(live.late_p50_us / 1e6)} late in the median "
        f"(p99 {duration(live.late_p99_us / 1e6)})"
    )


def _much_late(result: Result) -> str:
    """Return a warning that late completions lengthened the response times of software; empty if they did not."""
    live, mean_ms = result.live, result.response.mean_response_ms
    late = lateness(result) if result.timed() else ""
    if live is None or not late or (live.late_p50_us or 0.0) < _MUCH_LATE * 1000 * mean_ms:
        return ""
    return (
        f"this host did not keep up with the clock `{live.clock}`: {late}, compared with a mean "
        f"response of {duration(mean_ms / 1e3)}; software was slower than on such a device; "
        "repeat on an idle host, or with --clock x10 (ten times as slow) or --clock free"
    )


def offered(result: Result) -> str:
    """Return the offered load of an overloaded run as a phrase: the average, or "at times" if this is below 100 %."""
    offered_pct = _offered_pct(result)
    if offered_pct > 100:
        return f"{offered_pct:,.0f} % of what"
    return f"at times more (on average {offered_pct:,.0f} %) than"


def _offered_pct(result: Result) -> float:
    """Return the offered load of an overloaded run, in percent."""
    return result.run.load.offered_pct or 0.0


def _overload(result: Result, closed: str) -> str:
    """Return a sentence with the offered load of a run, the length of the queue, and the remedies."""
    load = result.run.load
    if _offered_pct(result) > 100:
        backlog = (
            f"{load.backlog_s:,.1f} s of work is left at the last arrival, so that response times grow "
            "with the length of the trace"
        )
    else:
        backlog = (
            f"up to {load.peak_backlog_s:,.1f} s of work is left when a request arrives, because requests "
            "come in bursts or collection holds them up"
        )
    cures = ", ".join(filter(None, (closed, f"--rate {_lighter(result):.2g} or less")))
    return (
        f"overloaded: the requests offer {offered(result)} {result.device} can serve, and {backlog}; "
        f"use {cures} or a faster device"
    )


def _lighter(result: Result) -> float:
    """Return a value for the option `rate` at which the device keeps up with the trace."""
    load = result.run.load
    span_s = result.run.simulated_s - load.backlog_s
    # Longest acceptable backlog at the proposed rate, seconds.
    short_s = min(_BURST_S, _BURST_SHARE * span_s)
    rates = [_COMFORTABLE * short_s / max(load.peak_backlog_s, load.backlog_s)]
    if load.peak_offered_pct is not None:
        rates.append(_COMFORTABLE * 100 / load.peak_offered_pct)
    rate = max(rates)
    if (offered_pct := _offered_pct(result)) > 100:
        rate = min(rate, _COMFORTABLE * 100 / offered_pct)
    return rate * float(result.options["rate"])


def changes_line(changes: Sequence[SettingChange]) -> str:
    """Return a text with the settings that were changed while a device was served, and the simulated times.

    >>> changes_line([SettingChange({"at_s": 1.5, "key": "cache.lies", "from": '"none"', "to": '"flush"'})])
    'cache.lies from none to flush at 1.500 s'
    """
    return ", ".join(
        f"{change.key} from {_bare(change.from_)} to {_bare(change.to)} at {change.at_s:.3f} s" for change in changes
    )


def _bare(value: str) -> str:
    return value.strip('"')


def mode_line(result: Result) -> str:
    """Return the replay mode of a run, and the reason if it was chosen automatically.

    >>> import emmclab
    >>> mode_line(emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0])))
    'closed loop (completions are recorded)'
    """
    name = mode_name(result.run.mode)
    line = f"{name} ({reason})" if (reason := result.run.mode_reason) else name
    if result.live:
        clock = result.live.clock
        # Idle time between requests shortens flushes, because an idle device writes back its cache. Therefore the text
        # states whether there is idle time.
        idle = "no idle time" if clock == "free" and not result.options.get("think") else "idle time"
        line += f", clock {clock} ({idle} between requests)"
    return line


def mode_name(mode: str) -> str:
    """Return the readable name of a replay mode.

    >>> mode_name("closed"), mode_name("back_to_back")
    ('closed loop', 'back to back')
    """
    return mode.replace("_", " ") if mode == "back_to_back" else f"{mode} loop"


def device_before(result: Result) -> str:
    """Describe the data on the device before a run.

    >>> import emmclab
    >>> device_before(emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0])))
    'device: new (empty)'
    """
    return f"device: {state_text(str(result.options['precondition']))}"


def state_text(precondition: str) -> str:
    """Describe the state of a device that a preconditioning produces, in words.

    >>> state_text("none"), state_text("used:365d,trim=yes"), state_text("sequential:80")
    ('new (empty)', 'used by a phone (365d, trim=yes)', 'preconditioned, sequential:80')
    """
    way, then, trace = precondition.rpartition(" then ")
    if then:
        return f"{state_text(way)}, then {trace}"
    if precondition == "none":
        return "new (empty)"
    word, _, amount = precondition.partition(":")
    if word == "steady":
        times = f"at most {amount or '4'} times its capacity"
        return f"full, then overwritten at random until write amplification is flat ({times})"
    if word == "used":
        return f"used by a phone ({amount.replace(',', ', ')})"
    return f"preconditioned, {precondition}"


def completion(result: Mapping[str, Any]) -> str:
    """Describe when writes complete in a run: in the write buffer if the device has one, else in the flash.

    >>> completion({"configuration": {"write_complete": "programmed", "write_buffer_kb": 512}})
    'in the write buffer, durable ones when programmed'
    """
    return completion_of(result["configuration"]["write_complete"], is_buffered(result))


def is_buffered(result: Mapping[str, Any]) -> bool:
    """Return whether writes complete in a volatile cache of the device in this run.

    >>> is_buffered({"configuration": {"write_buffer_kb": 512}}), is_buffered({})
    (True, False)
    """
    return bool((result.get("configuration") or {}).get("write_buffer_kb"))


def completion_of(write_complete: str, buffered: bool) -> str:
    """Describe what a value of `timing.write_complete` means for a device with or without a write buffer.

    >>> completion_of("programmed", buffered=False), completion_of("programmed", buffered=True)
    ('when programmed', 'in the write buffer, durable ones when programmed')
    """
    when = f"when {write_complete}"
    return f"in the write buffer, durable ones {when}" if buffered else when


def mean_text(value: float) -> str:
    """Return a mean response time as text.

    >>> mean_text(1.9)
    'mean response 1.90 ms'
    """
    return f"{_MEAN.name} {_MEAN.in_words(value)}"


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

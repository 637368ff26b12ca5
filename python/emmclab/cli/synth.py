"""`emmclab synth`: generates a trace from a model, from a job file of fio, or of requests of one kind."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from emmclab.cli.command import command
from emmclab.cli.console import To, output_option, print_json, print_stderr, stdout, to_stdout
from emmclab.cli.name_completion import workload_names
from emmclab.cli.options import AsJson, argument, option
from emmclab.cli.progress import Meter
from emmclab.cli.tables import framed
from emmclab.errors import ConfigError
from emmclab.traces.trace import Trace
from emmclab.traces.workload import (
    Workload,
    benchmark,
    benchmarks,
    canonical_benchmark,
    fio_jobs,
    pattern,
    size_of,
    workload_groups,
)

_MODEL = "Of a workload model"
_one_kind = partial(option, panel="Requests of one kind")


@dataclass(frozen=True)
class OneKind:
    """Command-line options for a trace of requests of one kind."""

    reads: Annotated[
        int | None, _one_kind("Percentage of reads; the others are writes.", min=0, max=100, metavar="PERCENT")
    ] = None
    size: Annotated[str | None, _one_kind("Size of each request.", metavar="SIZE", show_default="4k")] = None
    span: Annotated[
        str | None, _one_kind("Size of the address range of the requests.", metavar="SIZE", show_default="1g")
    ] = None
    random: Annotated[
        int | None,
        _one_kind(
            "Percentage of requests at a random address; the others follow the preceding request.",
            min=0,
            max=100,
            metavar="PERCENT",
            show_default="100",
        ),
    ] = None
    zipf: Annotated[
        float | None,
        _one_kind(
            "Exponent of a Zipf distribution of random addresses, such as 0.9; default: uniform.",
            metavar="THETA",
            advanced=True,
        ),
    ] = None
    iops: Annotated[float | None, _one_kind("Requests per second.", metavar="N", show_default="1000")] = None
    even: Annotated[bool, _one_kind("Arrivals at equal intervals instead of a Poisson process.", advanced=True)] = False
    flush_every: Annotated[
        int | None, _one_kind("Number of writes between two flushes; default: no flush.", min=1, advanced=True)
    ] = None

    def keywords(self) -> dict[str, Any]:
        """Return the options that are given, as keywords of `pattern`."""
        names = {"reads": "reads_pct", "random": "random_pct"}
        values = {name: None if value is False else value for name, value in asdict(self).items()}
        return {names.get(name, name): value for name, value in values.items() if value is not None}


@command(
    "emmclab synth Messaging messaging.parquet --seed 7",
    "emmclab synth --fio job.fio -o job.parquet",
    "emmclab synth --reads 30 --size 4k --zipf 0.9 --iops 500 --requests 100000 -o random.parquet",
)
def synth(
    *,
    name: Annotated[
        str | None,
        argument(
            "NAME|FILE",
            "A workload or benchmark of emmclab, or a model that `emmclab fit` wrote (.toml).",
            autocompletion=workload_names,
        ),
    ] = None,
    out: Annotated[
        Path | None, argument("OUT", "The trace; its extension selects the format; `-` for stdout, with --to.")
    ] = None,
    output: Annotated[
        Path | None, output_option("The same as OUT; required with --fio and --reads.", metavar="OUT", callback=None)
    ] = None,
    seed: Annotated[int, option("Seed; the same seed results in the same trace.", min=0)] = 1,
    requests: Annotated[int | None, option("Number of requests.", min=1)] = None,
    duration: Annotated[
        float | None,
        option("Time from first arrival to last completion, in seconds.", _MODEL, metavar="SECONDS", advanced=True),
    ] = None,
    rate_pct: Annotated[
        int, option("Arrival rate in percent of that of the workload.", _MODEL, min=1, metavar="PERCENT", advanced=True)
    ] = 100,
    fio: Annotated[Path | None, option("Generate the requests that fio would issue for this job file.")] = None,
    one_kind: OneKind,
    to: To = None,
    as_json: AsJson = False,
) -> None:
    """Generate a trace: from the model of a workload, from a job file of fio, or of requests of one kind.

    Without a name, list the workloads.
    """
    keywords = one_kind.keywords()
    if out is not None and output is not None:
        raise ConfigError(f"there are two outputs: {out} and {output}", field="--output", hint="give only one output")
    if fio is None and not keywords:
        if name is None and output is None:
            _list(as_json)
            return
        _of_model(name, out or output, (seed, requests, duration, rate_pct), to, as_json)
        return
    if name is not None and out is None and output is None and Path(name).suffix not in ("", ".toml"):
        # `--fio` and `--reads` take no NAME, so a single file name can only be the output file.
        output, name = Path(name), None
    _require_single_source(fio, keywords, (name, duration, rate_pct))
    if output is None:
        raise ConfigError(
            "`--output` is missing: the trace needs a file name",
            field="--output",
            hint="give an output file, for example `-o trace.parquet`",
        )
    to_stdout(output, as_json)
    trace = fio_jobs(fio, seed, requests=requests) if fio is not None else _of_one_kind(keywords, seed, requests)
    source = {"fio": str(fio)} if fio is not None else {"requests_of_one_kind": keywords}
    _write(trace, output, source | {"seed": seed}, to, as_json)


def _of_model(
    name: str | None, out: Path | None, extent: tuple[int, int | None, float | None, int], to: str | None, as_json: bool
) -> None:
    """Write the trace of a workload model; `extent` is its seed, number of requests, duration (s) and rate."""
    if name is None:
        raise ConfigError(
            "the workload is missing",
            field="NAME",
            hint="give a workload, for example `emmclab synth Messaging trace.parquet`; `emmclab synth` lists them",
        )
    if out is None:
        raise ConfigError(
            "the output file is missing",
            field="OUT",
            hint=f"give an output file, for example `emmclab synth {name} trace.parquet`",
        )
    seed, requests, duration, rate_pct = extent
    if duration is not None and not 0 < duration < 1e9:
        raise ConfigError(f"a trace of {duration} s is impossible", field="--duration", hint="give 0 to 1e9 s")
    to_stdout(out, as_json)
    if program := canonical_benchmark(name):
        for field, is_given in (("--duration", duration is not None), ("--rate-pct", rate_pct != 100)):
            if is_given:
                raise ConfigError(
                    f"`{field}` applies to workload models, but {program} is a benchmark",
                    field=field,
                    hint="use --requests to shorten a benchmark",
                )
        trace = benchmark(program, seed, requests=requests)
        _write(trace, out, {"benchmark": program, "seed": seed}, to, as_json)
        return
    model = Workload.named(name)
    trace = model.trace(seed, requests=requests, duration_s=duration, rate_pct=rate_pct)
    _write(trace, out, {"workload": model.name, "model": model.digest, "seed": seed}, to, as_json)


def _require_single_source(
    fio: Path | None, keywords: Mapping[str, Any], of_model: tuple[str | None, float | None, int]
) -> None:
    """Reject options for workload models if `--fio` or `--reads` is used, and `--fio` together with `--reads`."""
    name, duration, rate_pct = of_model
    source = "--fio" if fio is not None else "options on requests of one kind"
    others = [
        ("NAME", name, name is not None),
        ("--duration", duration, duration is not None),
        ("--rate-pct", rate_pct, rate_pct != 100),
        ("--reads", ", ".join(keywords), fio is not None and bool(keywords)),
    ]
    for field, value, is_given in others:
        if is_given:
            words = str(value) if field == "NAME" else f"{field} {value}"
            raise ConfigError(
                f"both {source} and `{words}` specify the workload of the trace",
                field=field,
                hint="leave out one of the two; to name the output file, use -o",
            )


def _of_one_kind(keywords: Mapping[str, Any], seed: int, requests: int | None) -> Trace:
    if requests is None:
        raise ConfigError(
            "`--requests` is missing: it determines the length of the trace",
            field="--requests",
            hint="give the number of requests, for example `--requests 100000`",
        )
    figures = dict(keywords)
    for key in ("size", "span"):
        if key in figures:
            size_bytes = size_of(figures[key])
            if size_bytes is None:
                raise ConfigError(
                    f"`--{key} {figures[key]}` is not a size",
                    field=f"--{key}",
                    hint="give a size in bytes, with k, m, g or t for 1,024, 1,024^2 and so on, for example 4k",
                )
            figures[key] = size_bytes
    return pattern(requests, seed=seed, **figures)


def _write(trace: Trace, out: Path, source: Mapping[str, object], to: str | None, as_json: bool) -> None:
    with Meter(f"synthesise {trace.name}") as meter:
        ledger = trace.write(out, to, progress=meter).ledger
    if as_json:
        print_json({**source, "requests": ledger["kept"], "out": str(out)})
        return
    model = f"model {source['model']}, " if "model" in source else ""
    print_stderr(f"{out}: {ledger['kept']:,} requests of {trace.name} ({model}seed {source['seed']})")
    if trace.header["note"] and "model" not in source:
        print_stderr(f"note: {trace.header['note']}")


def _list(as_json: bool) -> None:
    models = [(group, Workload.preset(name)) for group, names in workload_groups().items() for name in names]
    if as_json:
        rows = [{"workload": model.name, "model": model.digest, "group": group} for group, model in models]
        programs = [{"workload": name, "model": None, "group": "benchmarks"} for name in benchmarks()]
        print_json([*rows, *programs])
        return
    table = framed(
        "Workloads: of IISWC 2015 (applications, combos), fitted to traces of 2022 (phones)",
        "Workload",
        "Model",
        "Group",
        words=3,
    )
    for group, model in models:
        table.add_row(model.name, model.digest, group)
    stdout().print(table)
    table = framed("Benchmarks", "Benchmark", "What it does", words=2)
    for name, about in benchmarks().items():
        table.add_row(name, about)
    stdout().print()
    stdout().print(table)

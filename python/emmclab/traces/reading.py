"""Opens traces: by path with options, several as one, and the bundled ones."""

import inspect
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.runtime.files import printable
from emmclab.traces.profile import Profile
from emmclab.traces.trace import Trace, WriteResult, refuse_pipes

#: The data folder of the package.
_DATA = Path(__file__).parents[1] / "data"
#: Conditions on requests: one or several texts in the form of `--only`, or values by key.
Only = str | Sequence[str] | Mapping[str, Any]

#: Extensions that are not a part of the name of a trace.
_ENDINGS = {
    *(".csv", ".dat", ".fio", ".html", ".iolog", ".log", ".parquet", ".perfetto-trace", ".pftrace", ".trace", ".txt"),
    *(".gz", ".xz", ".zst", ".zstd"),
}


def read(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    lenient: bool = False,
    columns: str | None = None,
    time_unit: str | None = None,
    size_unit: str | None = None,
    reorder_window: int | None = None,
    mend_clock: bool | str = False,
    reissue_window: str | None = None,
    drop_reissued: bool = False,
    only: Only | None = None,
) -> Trace:
    """Open a trace of any format that `emmclab formats` lists.

    Args:
        path: the file; gzip, bzip2, zstd and xz are decompressed.
        format: name of a format; None to recognise it by content.
        lenient: skip and count bad records, instead of stopping at the first.
        columns: column names of a generic CSV in order, comma separated.
        time_unit: `s`, `ms`, `us` or `ns`, if the format does not define it; `none` if a table has no times.
        size_unit: `sector`, `byte`, `kb` or `page`, if the format does not define it.
        reorder_window: number of requests that are buffered to sort them by arrival.
        mend_clock: remove clock jumps and pauses of the recording from the trace. True finds them in a first
            pass and cuts them to the median gap; a length such as `1h` cuts longer gaps to the median of the
            earlier ones, in one pass. Requests after a backward jump are moved after the earlier ones. The
            ledger counts `clock_jumps` and `mended_jumps`.
        reissue_window: range of the time from the first issue of a request to the second, as `"0-100ms"`; if None,
            `"0.5ms-3ms"`, as for a UFS link that wakes up. The header contains it (`reissue_window`).
        drop_reissued: drop requests that are suspected to be issued a second time. The ledger counts
            `reissued` and `dropped_reissues`.
        only: selects requests, as `"process=kworker/*,from=10s,to=2m30s"`, several such texts, or
            `{"process": ["fio", "kworker/*"], "from": "10s"}`. Keys: device, process (both with `*` and `?`),
            pid, op, from, to (from the first arrival of the trace). The ledger counts the rest as `filtered`.

    Raises:
        InputError: the file cannot be read.
        FormatError: its format is unknown, or its content breaks the format.
        ConfigError: an option is invalid, such as a wrong length or an unknown key of `only`, or `reissue_window` is
            given for a trace with stored marks; on reading, also if a value of `only` matches no request.
        UnsupportedError: `mend_clock=True`, and the trace is a pipe, which can be read only once.

    >>> read(bundled()[0]).name
    'browser-cache'
    >>> read(bundled()[0], mend_clock=True).ledger["mended_jumps"]
    0
    """
    options = {name: value for name, value in locals().items() if name != "path"}
    usual = reading_options()
    used = {name: value for name, value in options.items() if value not in (usual[name], [])}
    if isinstance(used.get("only"), set | frozenset | tuple | Mapping):
        used["only"] = _conditions(used["only"])
    return Trace(trace_name(path), lambda: _core.Reader(path, **_as_read(options)), path=printable(path), reading=used)


def read_slice(
    path: str | PathLike[str], options: Mapping[str, Any], origin_ns: int, groups: tuple[int, int] | None = None
) -> Trace:
    """Open a part of a trace with options of `read`: one of several files, or row groups of a Parquet file.

    Times in the option `only` count from `origin_ns`, the first arrival of the whole trace. A part may be empty.
    """
    part = (origin_ns, groups)
    return Trace(trace_name(path), lambda: _core.Reader(path, **_as_read(options), slice=part))


def _as_read(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `read` in the form of the Rust core."""
    mend, only = options.get("mend_clock", False), options.get("only")
    changed: dict[str, Any] = {}
    if isinstance(mend, bool):
        changed["mend_clock"] = "auto" if mend else None
    if only is not None:
        changed["only"] = _conditions(only)
    return {**options, **changed}


def reading_options() -> dict[str, Any]:
    """Return the options of `read` with their defaults, for commands, studies and Python.

    >>> reading_options()["lenient"]
    False
    """
    parameters = inspect.signature(read).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def _conditions(only: Only) -> list[str]:
    """Return the conditions of `only` as texts in the form of the Rust core; several values of a key are joined.

    >>> _conditions({"process": ["fio", "dd"], "pid": 7}), _conditions("op=read")
    (['process=fio|dd', 'pid=7'], ['op=read'])
    """
    if isinstance(only, str):
        return [only]
    if not isinstance(only, Mapping):
        return list(only)
    several = (list, tuple, set, frozenset)
    return [
        f"{key}={'|'.join(map(str, sorted(value) if isinstance(value, set | frozenset) else value))}"
        if isinstance(value, several)
        else f"{key}={value}"
        for key, value in only.items()
    ]


def combine(traces: Sequence[Trace], *, offsets_s: Sequence[float] = ()) -> Trace:
    """Interleave traces on one clock, aligned at their starts, as if the applications ran together.

    `offsets_s` are the start times of the traces; by default all are 0.

    Raises:
        ConfigError: there is only one trace, or the number of offsets differs from that of the traces.

    >>> both = combine([read(path) for path in bundled()[:2]])
    >>> both.ledger["kept"] == sum(read(path).ledger["kept"] for path in bundled()[:2])
    True

    Generated traces can be combined, too:

    >>> from emmclab.traces.workload import Workload
    >>> combine([Workload.preset(name).trace() for name in ("Music", "Email")]).ledger["kept"]
    9819
    """
    if len(traces) < 2:
        raise ConfigError("one trace cannot be combined", hint="give two or more traces, or leave out `--combine`")

    if offsets_s and len(offsets_s) != len(traces):
        raise ConfigError(
            f"there are {len(offsets_s)} start times for {len(traces)} traces",
            field="--offset",
            hint="give one start time for each trace, in the order of the traces, for example `0s,10s`",
        )
    refuse_pipes(traces, "combined with another")
    offsets = [round(seconds * 1e9) for seconds in offsets_s]

    def open_stream() -> _core.Reader:
        return _core.Reader.combine([trace.stored() for trace in traces], offsets)

    parts = [part for trace in traces for part in (trace.parts or (trace,))]
    return Trace("/".join(trace.name for trace in traces), open_stream, parts=parts)


def join_parts(traces: Sequence[Trace]) -> list[Trace]:
    """Replace Parquet files that are marked as parts of one trace by the joined trace.

    The headers of such files contain the same source and the same total number of requests. The joined trace takes the
    position of its first part; all other traces are unchanged.
    """
    groups: dict[object, list[Trace]] = {}
    for number, trace in enumerate(traces):
        header = trace.header
        origin = (trace.whole, header["source"], header["format"], header["clock"])
        groups.setdefault(number if trace.whole is None else origin, []).append(trace)
    return [group[0] if len(group) == 1 else combine(group) for group in groups.values()]


def convert(
    source: str | PathLike[str], target: str | PathLike[str], *, to: str | None = None, **options: Any
) -> WriteResult:
    """Read `source` and write it as `target`, in the format `to` or by its extension.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     convert(bundled()[0], Path(folder, "trace.csv")).ledger["skipped"]
    0
    """
    return read(source, **options).write(target, format=to)


def profile(path: str | PathLike[str], **options: Any) -> Profile:
    """Read and characterise a trace. `options` are those of `read`.

    >>> profile(bundled()[0])["requests"] > 0
    True
    """
    return read(path, **options).profile()


def bundled_by_name() -> dict[str, Path]:
    """Return the bundled traces by the names under which commands and studies accept them.

    These are the traces of `bundled`, and request traces of simulated applications on a phone.

    >>> bundled_by_name()["chat"].name
    'chat.parquet'
    """
    modelled = sorted((_DATA / "modelled").glob("*.parquet"))
    jobs = _DATA.glob("*.fio")
    return {path.stem: path for path in (*bundled(), *bundled(annotated=True), *modelled, *jobs)}


def or_bundled(path: Path) -> Path:
    """Return a path if the file exists; otherwise the path of the bundled trace of that name.

    >>> or_bundled(Path("chat")).name
    'chat.parquet'
    """
    return path if path.exists() else bundled_by_name().get(str(path), path)


def bundled(*, annotated: bool = False) -> list[Path]:
    """List the traces that come with emmclab, recorded by the project itself.

    If `annotated` is set, list the traces that contain the roles of written blocks. They show applications on ext4, on
    a simulated device that was served as a block device. Commands and studies accept all traces by name
    (`bundled_by_name`).

    >>> all(path.suffix == ".parquet" for path in bundled())
    True
    >>> [path.stem for path in bundled(annotated=True)][:2]
    ['app-install-no-journal', 'app-install']
    """
    return sorted((_DATA / "annotated" if annotated else _DATA).glob("*.parquet"))


def trace_name(path: str | PathLike[str]) -> str:
    """Return the name of a trace: its file name without folders and extensions.

    >>> trace_name("traces/log106_Messaging.txt.gz")
    'log106_Messaging'
    """
    name = Path(fspath(path))
    while name.suffix.lower() in _ENDINGS:
        name = name.with_suffix("")
    return printable(name.name)

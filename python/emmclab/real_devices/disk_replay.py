"""Replay of a trace on a disk of this machine."""

from collections.abc import Callable
from dataclasses import replace
from os import PathLike, fspath
from typing import Annotated, Any, TypedDict, Unpack

from emmclab import _core
from emmclab.core_types import DiskReplayResult
from emmclab.errors import ConfigError
from emmclab.runtime.files import note_written_files
from emmclab.runtime.option import Option, attributes, complete, declarations
from emmclab.simulation.run_options import RUN_OPTIONS, check
from emmclab.traces.profile_options import percentiles_of
from emmclab.traces.trace import Trace

#: Callback: number of completed requests, and number of all requests; returns False to end the run.
ReplayProgress = Callable[[int, int], bool]
#: Options of a simulated run that a replay on a disk has, too.
_OF_REPLAYS = ("mode", "rate", "wrap_addresses", "flush_every", "percentiles")
#: Share of late requests, percent, from which `warnings_of` reports that the planned times were not kept.
_LATE_PCT = 1.0


class DiskReplayOptions(TypedDict, total=False):
    """The options of a replay on a disk; omitted options have their defaults."""

    mode: Annotated[str, replace(RUN_OPTIONS["mode"], advanced=False)]
    rate: Annotated[float, replace(RUN_OPTIONS["rate"], advanced=False)]
    depth: Annotated[
        int | None,
        Option(
            None,
            "Keep N requests unfinished, without the pauses of the trace, instead of sending them at their times.",
            least=1,
            most=1024,
            metavar="N",
        ),
    ]
    reads_only: Annotated[bool, Option(False, "Send only reads, which overwrite nothing.")]
    range: Annotated[
        str | None,
        Option(None, "Use only this part of the disk, for example 1GB..3GB; address 0 is its start.", metavar="A..B"),
    ]
    wrap_addresses: Annotated[bool, RUN_OPTIONS["wrap_addresses"]]
    flush_every: Annotated[int, RUN_OPTIONS["flush_every"]]
    seed: Annotated[
        int, Option(1, "Seed of the written data, which is incompressible.", least=0, metavar="N", advanced=True)
    ]
    percentiles: Annotated[Any, replace(RUN_OPTIONS["percentiles"], option=None)]


#: Declarations of the options of a replay on a disk, by name.
DISK_REPLAY_OPTIONS = declarations(DiskReplayOptions)
DiskReplayOptions.__doc__ = f"{DiskReplayOptions.__doc__}\n\n{attributes(DISK_REPLAY_OPTIONS)}"


def replay_on_disk(
    trace: Trace,
    disk: str | PathLike[str],
    *,
    overwrite: bool = False,
    output: str | PathLike[str] | None = None,
    progress: ReplayProgress | None = None,
    **options: Unpack[DiskReplayOptions],
) -> DiskReplayResult:
    """Send a trace to a disk, with direct I/O, and measure the response times.

    Args:
        trace: the trace; it is read before the first request is sent.
        disk: a block device, or a file that is the image of a disk.
        overwrite: allow that the data in the used range of the disk is destroyed.
        output: trace to write, with the measured times.
        progress: called before the first request is sent, and then about 20 times per second.
        options: see `DiskReplayOptions`.

    Raises:
        ConfigError: data would be destroyed without `overwrite`, the disk is in use, or an option is impossible.
        InputError: the disk or the trace cannot be read.
        UnsupportedError: this machine has no io_uring.

    >>> import emmclab, tempfile, pathlib
    >>> from emmclab.real_devices.disk_replay import replay_on_disk
    >>> disk = pathlib.Path("/var/tmp") / "emmclab-doctest.img"
    >>> _ = disk.write_bytes(bytes(1 << 20))
    >>> trace = emmclab.read(emmclab.bundled()[0])
    >>> result = replay_on_disk(trace, disk, depth=4, reads_only=True, wrap_addresses=True)
    >>> disk.unlink()
    >>> result.requests.read == result.requests.completed > 0
    True
    """
    values = complete(DISK_REPLAY_OPTIONS, options, "a replay on a disk")
    for name in _OF_REPLAYS:
        check(name, values[name])
    depth = values["depth"]
    if depth is not None and not 1 <= depth <= 1024:
        raise ConfigError(f"`depth` cannot be {depth}", field="depth", hint="give a depth of 1 to 1024")
    if (depth is not None or values["mode"] == "back_to_back") and values["rate"] != 1:
        raise ConfigError(
            "`rate` has no effect at a given depth, at which requests have no planned times",
            field="rate",
            hint="leave out `rate` or `depth`",
        )
    if depth is not None and values["mode"] != DISK_REPLAY_OPTIONS["mode"].default:
        raise ConfigError("`depth` replaces `mode`", field="depth", hint="leave out one of the two")
    run = {name: values[name] for name in _OF_REPLAYS} | {"percentiles": percentiles_of(values["percentiles"])}
    of_core = {"replay": run | {"seed": values["seed"]}, "depth": depth}
    of_core |= {name: values[name] for name in ("range", "reads_only")}
    stream = trace.open(one_device=True)
    reader = stream if isinstance(stream, _core.Reader) else trace.stored()
    replay = _core.DiskReplay(fspath(disk), reader, of_core)
    if not overwrite and (destroys := replay.destroys()) is not None:
        raise ConfigError(destroys, field="--yes", hint="give --yes if this data is not needed, or --reads-only")
    planned = replay.planned

    def report(completed: int) -> bool:
        return progress is None or progress(completed, planned)

    report(0)
    with note_written_files(output):
        return DiskReplayResult(replay.run(None if output is None else fspath(output), report))


def warnings_of(result: DiskReplayResult) -> list[str]:
    """Return warnings about a replay: requests that failed, were left out or were sent late."""
    texts = []
    requests, delay = result.requests, result.sending_delay
    if result.run.stopped is not None:
        missing = requests.unsent + requests.unfinished
        texts.append(f"{result.run.stopped}: {missing:,} of {requests.planned:,} requests were not completed")
    for failed in result.failed:
        texts.append(
            f"{failed.requests:,} requests ({failed.op}) failed: {failed.error}, the first at byte {failed.first_at:,}"
        )
    texts += [f"{row.requests:,} requests were left out: {row.reason}" for row in result.left_out]
    sent = requests.planned - requests.unsent - requests.held
    if delay is not None and sent and 100 * delay.late_requests / sent >= _LATE_PCT:
        texts.append(
            f"{delay.late_requests:,} of {sent:,} requests were sent more than 1 ms late (mean delay "
            f"{delay.mean_ms:,.3f} ms, longest {delay.max_ms:,.3f} ms): the disk or this machine did not keep pace "
            "with the trace"
        )
    return texts

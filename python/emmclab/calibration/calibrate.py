"""Fits device presets to measured service times."""

from os import PathLike
from pathlib import Path

from emmclab import _core
from emmclab.core_types import Calibration
from emmclab.errors import ConfigError, UnsupportedError
from emmclab.simulation.device import Device
from emmclab.traces.reading import read
from emmclab.traces.trace import Trace, refuse_coarse_clock

#: Text by which results of fio are recognised, and how many bytes at the start of a file are searched for it.
_FIO_MARK, _HEAD_BYTES = b'"fio version"', 1 << 16
#: Text by which results of `emmclab probe` are recognised.
_PROBE_MARK = b'"clustered_page_kb"'


def calibrate(
    source: str | PathLike[str] | Trace,
    *,
    name: str = "calibrated",
    capacity_gb: int = 32,
    seed: int = 1,
    skip_packed: bool = False,
    base: Device | None = None,
) -> Calibration:
    """Fit a device to measured service times: timing, parallelism and power, with error bars.

    Args:
        source: a trace with completions, or a file of `fio --output-format=json`. If a trace has neither start nor
            issue times, only the requests that found nothing unfinished are used.
        name: the name of the preset.
        capacity_gb: capacity visible to the host.
        seed: seed of the search and the error bars; the same seed results in the same preset.
        skip_packed: exclude packed commands of a trace, whose entries a device may program one by one.
        base: a device whose settings the preset has where the source does not determine them (interface, flash,
            policies, capacity); the fixed times of commands, of flushes and discards, stalls and stages of sleep are
            fitted.

    Returns:
        `toml` (the preset, commented), `figures` (name, unit, value, low, high; None if the samples do not show it),
        `durability` (flushes, durable writes and discards: kind, requests, median, setting), `queue_depth` (and
        `overlapping`, the number of requests it is based on), `stalls` (requests that took at least twice the time of
        their size: op, requests, stalls, median_us), `warnings` (what was assumed because the samples do not show it),
        `sizes` (measured, predicted and held-out service times in us) and the held-out errors in percent.

    Raises:
        EmmclabError: the source contains no service times, or too few sizes.
        UnsupportedError: the clock of the trace is too coarse for its service times.

    >>> import emmclab
    >>> found = calibrate(emmclab.bundled()[2])
    >>> found.toml.startswith("# Written by `emmclab calibrate`")
    True
    """
    config = None if base is None else base._config
    if not isinstance(source, Trace):
        path = Path(source)
        if path.is_file() and is_fio(path):
            if skip_packed:
                raise ConfigError(
                    f"{path}: results of fio contain no packed commands to skip",
                    field="skip_packed",
                    file=str(path),
                    hint="leave out --skip-packed for results of fio",
                )
            text = path.read_text(errors="replace")
            return Calibration(_core.calibrate_fio(path, text, (name, path.name), capacity_gb, seed, config))
        refuse_probe(path)
        source = read(path)
    if source.is_synthetic:
        raise UnsupportedError("a synthesised trace has no measured service times", hint="give a recorded trace")
    source_name = source.header["source"] or source.name
    if not source.is_pipe:
        stored = source.stored()
        stored.next()
        refuse_coarse_clock(source.name, stored.header(), "its service times, and which requests overlapped")
    return Calibration(
        _core.calibrate_trace(source.stored(), (name, source_name), capacity_gb, seed, skip_packed, config)
    )


def is_fio(path: Path) -> bool:
    """Return whether a file contains JSON results of fio."""
    return _begins_with(path, _FIO_MARK)


def refuse_probe(path: Path) -> None:
    """Reject a file that is the result of `emmclab probe`.

    A probe reports one mean time for all requests of a size. Some of these requests wait for garbage collection, and
    large writes overlap. A preset that is fitted to such means mispredicts these writes by more than half.

    Raises:
        UnsupportedError: the file is the result of a probe.
    """
    if path.is_file() and _begins_with(path, _PROBE_MARK):
        raise UnsupportedError(
            f"{path}: the result of a probe has mean bandwidths, not the service times of single requests",
            file=str(path),
            hint="record the requests (`emmclab record`), or measure single ones with a job for each size: "
            "`fio --iodepth=1 --direct=1 --output-format=json`",
        )


def _begins_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return mark in file.read(_HEAD_BYTES)

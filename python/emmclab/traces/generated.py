"""Generated traces: the requests that fio would issue for a job file, and traces of requests of one kind."""

from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from typing import cast

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.traces.trace import Trace

#: Letters for units of sizes as in fio: each unit is 1,024 times the previous one.
_UNITS = "kmgt"


def fio_jobs(path: str | PathLike[str], seed: int = 1, *, requests: int | None = None) -> Trace:
    r"""Generate the trace that fio would issue for a job file.

    Sizes, shares, reuse, distribution, order of jobs, rates and think times are those of fio; single addresses come
    from emmclab's own random numbers. Each file is a region of the address space. Traces of jobs without a rate should
    be replayed back to back (`mode="back_to_back"`).

    Args:
        path: the job file; `${NAME}` in it is replaced by the environment variable, as in fio.
        seed: seed of the random numbers.
        requests: ends the trace after this number of requests.

    Raises:
        ConfigError: an option is not supported, a value is invalid, or a job has no end; with file, line, option and
            value.
        InputError: the file cannot be read.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     job = pathlib.Path(folder, "mine.fio")
    ...     _ = job.write_text("[mine]\nrw=randwrite\nbs=4k\nsize=1m\n")
    ...     fio_jobs(job).ledger["kept"]
    256
    """
    _require_numbers(seed, requests)
    path = fspath(path)
    return _trace(Path(path).stem, lambda: _core.GeneratedTrace.job_file(path, seed=seed, requests=requests))


def pattern(
    requests: int,
    *,
    seed: int = 1,
    reads_pct: int = 50,
    size: int = 4096,
    span: int = 1 << 30,
    random_pct: int = 100,
    zipf: float | None = None,
    iops: float = 1000.0,
    even: bool = False,
    flush_every: int = 0,
) -> Trace:
    """Generate a trace of requests of one kind, which arrive independently of each other and of the device.

    Args:
        requests: total number of reads and writes.
        seed: seed of the random numbers.
        reads_pct: percentage of reads; the others are writes.
        size: size of each request in bytes.
        span: size of the address range of the requests in bytes.
        random_pct: percentage of requests at a random address; the others start where the previous one ended.
        zipf: exponent of a Zipf distribution of random addresses; without it the distribution is uniform.
        iops: requests per second.
        even: whether arrivals are equidistant, instead of a Poisson process.
        flush_every: number of writes between two flushes; 0 for no flushes.

    Raises:
        ConfigError: an argument is out of range.

    >>> trace = pattern(1000, reads_pct=30, zipf=0.9, iops=500)
    >>> 65 < trace.profile()["write_requests_pct"] < 75
    True
    """
    _require_numbers(seed, requests)
    figures = {"read_pct": reads_pct, "bytes": size, "span": span, "random_pct": random_pct}
    for field, value in (figures | {"flush_every": flush_every}).items():
        _require(field, value, 0)
    return _trace(
        "pattern",
        lambda: _core.GeneratedTrace.pattern(
            requests,
            seed=seed,
            read_pct=reads_pct,
            bytes=size,
            span=span,
            random_pct=random_pct,
            zipf=zipf,
            iops=iops,
            poisson=not even,
            flush_every=flush_every,
        ),
    )


def size_of(text: str) -> int | None:
    """Return the bytes of a size in the notation of fio; `None` if it is not a size.

    >>> size_of("4k"), size_of("1GB"), size_of("512"), size_of("4 apples")
    (4096, 1073741824, 512, None)
    """
    word = text.strip().lower().removesuffix("b").removesuffix("i")
    power = _UNITS.find(word[-1:]) + 1 if word[-1:] else 0
    digits = word[:-1] if power else word
    return int(digits) * 1024**power if digits.isascii() and digits.isdecimal() else None


def _trace(name: str, open_stream: Callable[[], _core.GeneratedTrace]) -> Trace:
    # A generator is passed as a reader here, because it has the same methods.
    return Trace(name, cast("Callable[[], _core.Reader]", open_stream))


def _require_numbers(seed: int, requests: int | None) -> None:
    _require("seed", seed, 0)
    if requests is not None:
        _require("requests", requests, 1)


def _require(field: str, value: int, least: int) -> None:
    if not least <= value < 1 << 64:
        raise ConfigError(f"`{value}` is out of range", field=field, hint=f"give {least} to 2^64 - 1")

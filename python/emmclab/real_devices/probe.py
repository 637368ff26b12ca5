"""Measures the organisation of a flash device from outside: clustered page and clustered block.

The method is that of J. Kim, D. Jung, J. Kim and J. Huh, "A methodology for extracting performance parameters in solid
state disks (SSDs)", MASCOTS 2009. A small request needs two page operations if it crosses the border of a clustered
page, else one. The distance between slow offsets is therefore the size of the clustered page. Random writes are as fast
as sequential ones from the size at which they replace whole clustered blocks, because no data has to be copied.
"""

import mmap
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol, Self

from emmclab import _core
from emmclab.errors import ConfigError, InputError
from emmclab.simulation.device import Device

#: Maximum size of a request of a probe, KB.
LONGEST_KB = 16 * 1024


class Target(Protocol):
    """A storage target that can be read and perhaps written by offset."""

    @property
    def name(self) -> str:
        """Return a readable name of the target."""

    @property
    def size_kb(self) -> int:
        """Return the size of the target in KB."""

    def transfer(self, write: bool, offsets_kb: Sequence[int], length_kb: int) -> list[float]:
        """Read or write at each offset, one after the other; return the time of each in ms."""


class Simulated:
    """A new simulated device, accessed by synchronous direct I/O."""

    def __init__(self, device: Device) -> None:
        """Create the device."""
        self._io = _core.DirectIo(device.core)
        self.name = device.name
        self.size_kb = self._io.sectors // 2

    def transfer(self, write: bool, offsets_kb: Sequence[int], length_kb: int) -> list[float]:
        """Read or write at each offset; return the simulated time of each request in ms."""
        times_ns = self._io.transfer(write, [2 * offset for offset in offsets_kb], 2 * length_kb)
        return [ns / 1e6 for ns in times_ns]


def open_direct(path: Path, *, write: bool, flags: int = 0) -> int:
    """Open a block device or a file with direct I/O; for writing, a block device must not be in use."""
    flags |= os.O_DIRECT | os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY)
    try:
        if write and path.is_block_device():
            flags |= os.O_EXCL
        return os.open(path, flags)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be opened for direct I/O: {error.strerror}",
            file=str(path),
            errno=error.errno,
            hint="run as root for a block device, which must not be mounted for writing, and use a file "
            "outside of tmpfs, which has no direct I/O",
        ) from error


class Disk:
    """A block device or a file, accessed without the page cache (`O_DIRECT`, `O_DSYNC`)."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """Open the target; for writing, a block device must not be in use.

        Raises:
            InputError: the target cannot be opened, or its file system does not support direct I/O.
        """
        self._file = open_direct(path, write=write, flags=os.O_DSYNC if write else 0)
        self.name = str(path)
        self.size_kb = os.lseek(self._file, 0, os.SEEK_END) // 1024
        # Direct I/O needs page-aligned memory, which mmap provides. Random bytes cannot be compressed by the device.
        self._memory = mmap.mmap(-1, LONGEST_KB * 1024)
        block = os.urandom(1 << 20)
        for offset in range(0, LONGEST_KB * 1024, len(block)):
            self._memory[offset : offset + len(block)] = block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def transfer(self, write: bool, offsets_kb: Sequence[int], length_kb: int) -> list[float]:
        """Read or write at each offset; return the measured time of each request in ms."""
        times_ms = []
        with memoryview(self._memory) as view, view[: length_kb * 1024] as part:
            move = os.pwritev if write else os.preadv
            for offset in offsets_kb:
                begin = time.perf_counter_ns()
                try:
                    moved = move(self._file, [part], offset * 1024)
                except OSError as error:
                    raise InputError(
                        f"{self.name}: direct I/O fails at {offset} KB: {error.strerror}",
                        file=self.name,
                        errno=error.errno,
                        hint="check the device (`dmesg`), or use a smaller part of the device (--span-mb)",
                    ) from error
                times_ms.append((time.perf_counter_ns() - begin) / 1e6)
                if moved != length_kb * 1024:
                    raise InputError(
                        f"{self.name}: direct I/O moves {moved} of {length_kb * 1024} bytes",
                        file=self.name,
                        hint="use a smaller part of the target (--span-mb)",
                    )
        return times_ms


def check_size(target: Target, span_kb: int) -> None:
    """Reject a span that exceeds the target or is too small for a measurement."""
    least_kb = 2 * LONGEST_KB
    if not least_kb <= span_kb <= target.size_kb:
        raise ConfigError(
            f"cannot measure a span of {span_kb // 1024} MB on {target.name}, which has {target.size_kb // 1024} MB",
            field="--span-mb",
            hint=f"give a span of {least_kb // 1024} to {target.size_kb // 1024} MB",
        )


#: Callback: kilobytes transferred so far, total kilobytes, and requests so far.
ProbeProgress = Callable[[int, int, int], None]

#: Distance between two probed offsets (`_STEP_KB`), and size of the request at each offset (`_PROBE_KB`), KB.
_STEP_KB = 4
_PROBE_KB = 8
#: Number of offsets in a window (`_STEPS`), number of windows (`_WINDOWS`), and their alignment (`_WINDOW_KB`).
_STEPS = 64
_WINDOWS = 24
_WINDOW_KB = 512
#: Candidate sizes of the clustered page, KB.
_PAGES_KB = (8, 16, 32, 64, 128)
#: Minimum ratio of the times at page borders to the times at other offsets for a page size to be recognised.
_DEARER = 1.03
#: Share of the sequential bandwidth above which random writes count as equally fast as sequential writes.
_AS_FAST = 0.97
#: Request sizes of the bandwidth curves, KB.
_SIZES_KB = tuple(4 << power for power in range(13))
_WHOLE_FROM_KB = 128
#: Number of requests for a size below `_WHOLE_FROM_KB`: minimum, maximum, and limit by their total size in KB. Larger
#: requests write the whole region.
_FEWEST, _MOST, _MOST_KB = 4, 512, 8 * 1024
#: Number of requests between two checks of progress and Ctrl-C.
_SLICE = 64


@dataclass(frozen=True)
class Point:
    """One point of a bandwidth curve: the bandwidth for an operation, order and request size."""

    op: str
    order: str
    size_kb: int
    mb_per_s: float


@dataclass(frozen=True)
class Place:
    """The median time of a small request at an offset."""

    op: str
    offset_kb: int
    time_ms: float


@dataclass
class Probe:
    """Result of a probe; sizes are None if the measurements do not show them."""

    target: str
    wrote: bool
    span_mb: int
    clustered_page_kb: int | None = None
    clustered_page_by: str = ""
    clustered_block_kb: int | None = None
    findings: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """Return all fields as plain values."""
        return asdict(self)


def probe(target: Target, *, write: bool, span_kb: int, seed: int = 1, progress: ProbeProgress | None = None) -> Probe:
    """Measure the sizes of the clustered page and the clustered block of a target.

    Args:
        target: device or file to probe; its first `span_kb` are overwritten if `write` is true.
        write: whether the target may be overwritten; reads alone never show the clustered block.
        span_kb: size of the part of the target that is used, in KB.
        seed: seed of the random orders.
        progress: called regularly with the progress.

    Raises:
        ConfigError: the span is impossible.
        InputError: the target fails.
    """
    check_size(target, span_kb)
    span_kb -= span_kb % LONGEST_KB
    run = _Run(target, span_kb, random.Random(seed), progress, write)  # noqa: S311 (places, not secrets)
    result = Probe(target=target.name, wrote=write, span_mb=span_kb // 1024)
    if write:
        # Measure sequential writes first, while no blocks are half filled by small writes.
        run.whole("sequential", LONGEST_KB)
        result.points += _write_curves(run)
        result.clustered_block_kb = block_size(result.points)
    for op in ("write", "read") if write else ("read",):
        result.places += run.places(op)
        page_kb = page_size([place.time_ms for place in result.places if place.op == op])
        if page_kb is not None and result.clustered_page_kb is None:
            result.clustered_page_kb, result.clustered_page_by = page_kb, op
    for size_kb in _SIZES_KB:
        for order in ("sequential", "random"):
            result.points.append(Point("read", order, size_kb, run.some("read", order, size_kb)))
    result.findings = _findings(result)
    return result


def _write_curves(run: "_Run") -> list[Point]:
    """Measure writes, sequential and large ones first, because small writes fragment the flash and slow later ones."""
    large = [size for size in _SIZES_KB if size >= _WHOLE_FROM_KB]
    speeds = {("sequential", size_kb): run.whole("sequential", size_kb) for size_kb in reversed(large)}
    speeds |= {("random", size_kb): run.whole("random", size_kb) for size_kb in reversed(large)}
    run.whole("sequential", LONGEST_KB)
    for order in ("sequential", "random"):
        small = [size for size in _SIZES_KB if size < _WHOLE_FROM_KB]
        speeds |= {(order, size_kb): run.some("write", order, size_kb) for size_kb in reversed(small)}
    by_size = sorted(speeds.items(), key=lambda item: item[0][::-1])
    return [Point("write", order, size_kb, speed) for (order, size_kb), speed in by_size]


def page_size(times_ms: Sequence[float]) -> int | None:
    """Compute the size of the clustered page in KB from times of 8 KB requests at offsets of 0, 4, 8 KB and so on.

    >>> page_size([2.0 if i % 4 == 3 else 1.0 for i in range(64)])
    16
    >>> page_size([1.0] * 64) is None
    True
    """
    for page_kb in _PAGES_KB:
        period = page_kb // _STEP_KB
        border = sorted(time for i, time in enumerate(times_ms) if (i + 1) % period == 0)
        inside = sorted(time for i, time in enumerate(times_ms) if (i + 1) % period)
        if border[len(border) // 10] > _DEARER * inside[len(inside) * 9 // 10]:
            return page_kb
    return None


def block_size(points: Sequence[Point]) -> int | None:
    """Return the size of the clustered block in KB, from which random writes are as fast as sequential ones."""
    speeds = {(point.order, point.size_kb): point.mb_per_s for point in points if point.op == "write"}
    sizes = [size for order, size in speeds if order == "random" and size >= _WHOLE_FROM_KB]
    as_fast = [speeds["random", size] >= _AS_FAST * speeds["sequential", size] for size in sizes]
    if all(as_fast) or not as_fast[-1]:
        return None
    return sizes[len(as_fast) - as_fast[::-1].index(False)]


def _findings(result: Probe) -> list[str]:
    words = []
    if result.clustered_page_kb is None:
        words.append("clustered page: the time of a small request does not depend on its position")
    else:
        borders = f"requests that cross a multiple of {result.clustered_page_kb} KB take longer"
        words.append(f"clustered page: {result.clustered_page_kb} KB; {result.clustered_page_by} {borders}")
    if result.clustered_block_kb is not None:
        words.append(
            f"clustered block: {result.clustered_block_kb / 1024:g} MB; random writes of this size or larger are "
            "as fast as sequential ones"
        )
    elif result.wrote:
        words.append("clustered block: not found; random writes are as fast as sequential ones at all sizes or at none")
    else:
        words.append("clustered block: only writes can show it")
    return words


class _Run:
    """Executes the requests of a probe, and reports the progress."""

    def __init__(
        self, target: Target, span_kb: int, draw: random.Random, progress: ProbeProgress | None, write: bool
    ) -> None:
        self._target = target
        self._span_kb = span_kb
        self._draw = draw
        self._progress = progress
        self._moved_kb = 0
        self._requests = 0
        self._total_kb = self._expected_kb(write)

    def _expected_kb(self, write: bool) -> int:
        small = sum(self._count(size) * size for size in _SIZES_KB)
        places = _WINDOWS * _STEPS * _PROBE_KB
        reads = 2 * small + places
        if not write:
            return reads
        small_kb = sum(self._count(size) * size for size in _SIZES_KB if size < _WHOLE_FROM_KB)
        sizes = sum(1 for size in _SIZES_KB if size >= _WHOLE_FROM_KB)
        return reads + places + 2 * small_kb + self._span_kb * (2 + 2 * sizes)

    def _count(self, size_kb: int) -> int:
        return min(max(_FEWEST, min(_MOST, _MOST_KB // size_kb)), self._span_kb // size_kb)

    def _times(self, write: bool, offsets_kb: Sequence[int], length_kb: int) -> Iterator[float]:
        step = max(1, min(_SLICE, LONGEST_KB // length_kb))
        for start in range(0, len(offsets_kb), step):
            part = offsets_kb[start : start + step]
            yield from self._target.transfer(write, part, length_kb)
            self._moved_kb += len(part) * length_kb
            self._requests += len(part)
            if self._progress is not None:
                self._progress(self._moved_kb, self._total_kb, self._requests)

    def places(self, op: str) -> list[Place]:
        """Measure small requests at all offsets within some windows, in random order; return the median by offset."""
        windows = self._draw.sample(range(self._span_kb // _WINDOW_KB), min(_WINDOWS, self._span_kb // _WINDOW_KB))
        tries = [(window * _WINDOW_KB, step) for window in windows for step in range(_STEPS)]
        self._draw.shuffle(tries)
        offsets = [window + step * _STEP_KB for window, step in tries]
        by_step: list[list[float]] = [[] for _ in range(_STEPS)]
        for (_, step), time_ms in zip(tries, self._times(op == "write", offsets, _PROBE_KB), strict=True):
            by_step[step].append(time_ms)
        return [Place(op, step * _STEP_KB, statistics.median(times)) for step, times in enumerate(by_step)]

    def some(self, op: str, order: str, size_kb: int) -> float:
        """Measure several requests of one size; return the bandwidth in MB/s."""
        places = self._span_kb // size_kb
        count = self._count(size_kb)
        first = self._draw.randrange(places - count + 1)
        numbers = range(first, first + count) if order == "sequential" else self._draw.sample(range(places), count)
        times = list(self._times(op == "write", [number * size_kb for number in numbers], size_kb))
        return count * size_kb / 1024 / (sum(times) / 1e3)

    def whole(self, order: str, size_kb: int) -> float:
        """Write the whole span once; return the bandwidth in MB/s over its second half, when no free space is left."""
        numbers = list(range(self._span_kb // size_kb))
        if order == "random":
            self._draw.shuffle(numbers)
        times = list(self._times(True, [number * size_kb for number in numbers], size_kb))
        late = times[len(times) // 2 :]
        return len(late) * size_kb / 1024 / (sum(late) / 1e3)

"""A served device: its figures, and operations on it while other software uses it."""

import shutil
import time
from os import PathLike, fspath
from typing import Any, Self

from emmclab import _core
from emmclab.core_types import LiveStatus, PreviousRun
from emmclab.runtime.lists import Names, several
from emmclab.simulation.device import Device
from emmclab.simulation.layers import refuse_lines
from emmclab.simulation.result import Result

#: Clock setting that lets a device finish its background work 10,000 times as fast.
_FAST = "x0.0001"
#: Background work of the device is polled every 0.25 s, since the core continues it every 0.2 s. It counts
#: as finished after 3 polls without a change; after 40 polls the wait ends in any case.
_LOOK_S, _SAME_LOOKS, _MOST_LOOKS = 0.25, 3, 40
#: Settings that can change while a device is served; `*` is the number of a block group.
CHANGING: tuple[str, ...] = tuple(_core.Live.changing())


class ServedDisk:
    """A block device that is being served; a context manager that stops it cleanly.

    `path` is what a client opens: the loop or ublk device, the file, or the URI of the NBD server.
    """

    def __init__(self, live: _core.Exports) -> None:
        """Wrap a block device of the Rust core."""
        self._exports = live
        self._temporary: str | None = None
        #: What clients open (paths and URIs), in the order in which the exports were requested.
        self.paths: list[str] = []
        #: QEMU command for a guest that has the device as its eMMC; None if `sdhci` was not requested.
        self.qemu: str | None = None
        #: Folder at which the file system is mounted; None if it is not mounted.
        self.mounted: str | None = None

    @property
    def path(self) -> str:
        """The path or URI that a client opens to use the device.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.path.startswith("nbd+unix://")
        True
        """
        return self.paths[0]

    @property
    def capacity_bytes(self) -> int:
        """Capacity in bytes, as a client sees it.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.capacity_bytes == disk.device.capacity_bytes
        True
        """
        return self._exports.capacity

    def news(self) -> list[str]:
        """Return messages about clients since the last call, for example that a guest has connected.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.news()
        []
        """
        return self._exports.news()

    def mount(self, folder: str | PathLike[str], *, options: str | None = None, partition: int | None = None) -> None:
        """Mount the file system on the loop device, or on a partition of it, at a folder.

        `options` are mount options, in the form of `mount -o`.

        Raises:
            ConfigError: there is no loop device.
            EmmclabError: the device has no file system that the kernel supports.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.mount("/mnt/phone")
        Traceback (most recent call last):
        ...
        emmclab.errors.ConfigError: the device is not served as a loop or ublk device
        """
        self._exports.mount(fspath(folder), options=options, partition=partition)
        self.mounted = fspath(folder)

    def add_partition(
        self, number: int, first_sector: int, sectors: int, *, mkfs: str, mkfs_options: Names = ()
    ) -> None:
        """Make the kernel show a range of the loop device as partition `number`, with a new file system.

        No partition table is written; the partition exists as long as the device is served.

        Raises:
            ConfigError: there is no loop device, or no such file system.
            EmmclabError: the range is in use, or is not within the device.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.add_partition(1, 2048, 65536, mkfs="ext4")
        Traceback (most recent call last):
        ...
        emmclab.errors.ConfigError: the device is not served as a loop or ublk device
        """
        self._exports.add_partition(number, first_sector, sectors)
        self._exports.mkfs(mkfs, options=several(mkfs_options), overwrite=True, partition=number)

    def unmount(self) -> None:
        """Unmount all file systems; their data is on the device when this returns.

        Raises:
            EmmclabError: processes use a file system; the message lists them.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.unmount()
        Traceback (most recent call last):
        ...
        emmclab.errors.ConfigError: the device is not served as a loop or ublk device
        """
        self._exports.unmount()
        self.mounted = None

    def run(self, command: Names) -> int:
        """Run a command with the paths of device and mount point in `EMMCLAB_DEVICE` and `EMMCLAB_MOUNT`.

        Returns its exit status, or 128 plus the number of the signal that ended it.

        Raises:
            ConfigError: there is no loop or ublk device.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.run(["true"])
        Traceback (most recent call last):
        ...
        emmclab.errors.ConfigError: the device is not served as a loop or ublk device
        """
        return self._exports.run(several(command))

    def stop(self) -> Any:
        """Stop the device cleanly and return the result of the run.

        >>> import emmclab
        >>> emmclab.serve("small-1gb", clock="free", nbd="auto").stop().device
        'small-1gb'
        """
        raise NotImplementedError

    def socket(self, path: str | PathLike[str]) -> str:
        """Return the path of the socket of an NBD server: `path`, or one in a temporary folder if it is `auto`.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.socket("/run/nbd.sock")
        '/run/nbd.sock'
        """
        if path != "auto":
            return fspath(path)
        import tempfile  # Imported here: only this option needs it.

        self._temporary = tempfile.mkdtemp(prefix="emmclab-")
        return f"{self._temporary}/nbd.sock"

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class LiveDevice(ServedDisk):
    """A simulated device that is being served."""

    def __init__(self, live: _core.Live, device: Device, options: dict[str, Any]) -> None:
        """Wrap a served device of the Rust core; called by `serve`."""
        super().__init__(live)
        self._live = live
        self._device = device
        self._options = options
        self._result: Result | None = None
        #: Figures of creating and mounting the file system, which the result excludes; None without a file system.
        self.prepared: Result | None = None
        #: Figures of the background work after mounting, until the device was idle (`settle`). The result excludes
        #: them.
        self.settled: Result | None = None

    @property
    def device(self) -> Device:
        """The simulated device with its settings.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.device.name
        'small-1gb'
        """
        return self._device

    @property
    def found(self) -> PreviousRun:
        """What an earlier run left: whether there is an image, whether it was closed cleanly, and recovered units.

        `units_entered` is the number of map units that were in the image, but not in the saved tables.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.found.image
        False
        """
        return PreviousRun(self._live.found())

    def stats(self) -> LiveStatus:
        """Return figures: totals, and those of the time since the last call (`interval_*`, `response_*`).

        Raises:
            EmmclabError: the service has failed, for example by a broken invariant under `check`.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.stats().powered
        True
        """
        self._live.check()
        return LiveStatus(self._live.status())

    def result(self) -> Result:
        """Return the result of the run so far; if a file system was mounted at the start, since the mount.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.result().requests.total
        0
        """
        return self._result or self._sum(self._live.result())

    def _sum(self, fields: dict[str, Any]) -> Result:
        return Result({"trace": "live", **fields, "options": self._options})

    def clear_counters(self) -> None:
        """Reset the result and the recorded trace, so that they contain only later requests.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.clear_counters()
        ...     disk.result().requests.total
        0
        """
        self._live.clear_counters()

    def settle(self) -> Result:
        """Let the device finish its background work: write-back, folding, and garbage collection when idle.

        Simulated time advances without requests until nothing changes, which takes about a second of real time. With
        `clock` set to `free` and `think` not set, time does not advance without requests, so that no such work is done.
        Returns the figures of this work; the result and the recorded trace are reset.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.settle().flash.page_programs.total
        0
        """
        self.clear_counters()
        clock = self.stats().clock
        if clock != "free" or self._options["think"]:
            self.set("clock", _FAST)
            previous, unchanged = None, 0
            for _ in range(_MOST_LOOKS):
                time.sleep(_LOOK_S)
                flash = self.result().flash
                previous, unchanged = flash, unchanged + 1 if flash == previous else 0
                if unchanged == _SAME_LOOKS:
                    break
            self.set("clock", clock)
        result = self.result()
        self.clear_counters()
        return result

    def drain(self) -> Result:
        """Let the layers move all buffered data to its final place; the result contains the time in `run.drain_s`.

        A later `result` contains this time only if no request has arrived since; a mounted file system may send
        requests.

        Raises:
            ConfigError: the clock is not `free`, or requests are in progress.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.drain().run.drain_s
        0.0
        """
        return self._sum(self._live.drain())

    def make_plain(self) -> None:
        """Let the layers move all data to its final place, so that the image can be served without layers.

        No request may be sent afterwards; call `stop` next.

        Raises:
            ConfigError: the clock is not `free`, or requests are in progress.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", layers=["advil"], clock="free", nbd="auto") as disk:
        ...     disk.make_plain()
        """
        self._live.make_plain()

    def cut(self) -> None:
        """Cut the power: data that was not programmed is lost; requests fail until `restore`.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.cut()
        ...     disk.stats().powered
        False
        """
        self._live.cut()

    def acknowledge(self, line: str) -> None:
        """Write an acknowledgement into the crash log, after all completions that were sent.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.acknowledge("row 1 is safe")
        """
        self._live.acknowledge(line)

    def follow(self, lines: int, answers: int | None = None) -> None:
        """Write each line that a program prints into the crash log, before the next request of the device.

        Args:
            lines: file descriptor from which the lines are read; nothing else may read from it.
            answers: file descriptor to which a byte is written for each line.

        >>> import emmclab, os
        >>> lines, program = os.pipe()
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.follow(lines)
        """
        self._live.follow(lines, answers)

    def new_lines(self) -> list[str]:
        """Return the lines that `follow` has written into the crash log since the last call.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.new_lines()
        []
        """
        return self._live.new_lines()

    def mark(self, name: str) -> None:
        """Write a named mark into the crash log at the current position.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.mark("ready")
        """
        self._live.mark(name)

    def end_log(self) -> None:
        """End the crash log, if there is one; the device continues.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.end_log()
        """
        self._live.end_log()

    def restore(self) -> None:
        """Restore the power after `cut`.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.cut()
        ...     disk.restore()
        ...     disk.stats().powered
        True
        """
        self._live.restore()

    def set(self, key: str, value: str) -> None:
        """Change a setting of the running device: the `clock`, or one of `CHANGING`, such as a time or limit.

        The result lists each change with its time in `setting_changes`.

        Raises:
            ConfigError: the setting cannot change while the device is served, or not to this value.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.set("clock", "x0.1")
        ...     disk.set("controller.write_overhead_us", "250")
        ...     disk.stats().clock, disk.result().setting_changes[0].to
        ('x0.1', '250.0')
        """
        refuse_lines({key: value})
        self._live.set(key, value)

    def stop(self) -> Result:
        """Stop the device cleanly: unmount, save image and state; return the result of the run.

        >>> import emmclab
        >>> emmclab.serve("small-1gb", clock="free", nbd="auto").stop().device
        'small-1gb'
        """
        if self._result is None:
            try:
                self._result = self._sum(self._live.stop())
            finally:
                self._remove_temporary()
        return self._result

    def abort(self) -> None:
        """Stop a device that failed to start; leave an existing trace and existing images unchanged, remove new images.

        An existing image that requests have already changed, such as those of `mkfs`, is saved.

        >>> import emmclab
        >>> emmclab.serve("small-1gb", clock="free", nbd="auto").abort()
        """
        try:
            self._live.abort()
        finally:
            self._remove_temporary()

    @property
    def is_recorded(self) -> bool:
        """Whether `stop` has written the trace; a trace without requests replaces no existing file.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.is_recorded
        False
        """
        return self._live.is_recorded()

    def __repr__(self) -> str:
        return f"<LiveDevice {self._device.name!r} at {', '.join(self.paths)}>"

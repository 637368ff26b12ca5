"""A simulated device as a block device that other software uses.

>>> import emmclab
>>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
...     disk.path.startswith("nbd+unix://"), disk.stats()["requests"]
(True, 0)
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any

from emmclab import _core
from emmclab.devices.device import Device
from emmclab.devices.layers import Setting, refuse_lines, stack
from emmclab.devices.preconditioning import no_trace
from emmclab.devices.result import Result
from emmclab.errors import ConfigError, UnsupportedError
from emmclab.live.qemu import qemu_command
from emmclab.live.span import keep_from

#: File systems that can be made on a loop or ublk device.
FILE_SYSTEMS = ("ext4", "xfs", "btrfs", "f2fs", "vfat")
#: What another process runs once this one was killed; its arguments are the package's folder and a number.
_CLEANER = """import sys
sys.path.insert(0, sys.argv[1])
from emmclab import _core
_core.delete_left_ublk(int(sys.argv[2]))"""
#: Folders of tools that are not in every user's PATH.
MORE_PATH = ":/usr/sbin:/sbin"
#: The clock on which a device ends its own work.
_FAST = "x0.0001"
#: The device's own work is looked at every 0.25 s, since the core goes on with it every 0.2 s. It has ended
#: after 3 looks without a change; after 40 looks nobody waits any longer.
_LOOK_S, _SAME_LOOKS, _MOST_LOOKS = 0.25, 3, 40
#: Settings that can change while a device is served; `*` stands for the number of a block group.
CHANGING: tuple[str, ...] = tuple(_core.Live.changing())


class LiveDevice:
    """A device that is being served; a context manager that ends it in good order.

    `path` is what a client opens: the loop or ublk device, the file, or the URI of the NBD server.
    """

    def __init__(
        self, live: _core.Live, device: Device, said: Mapping[str, Any], temporary: str | None
    ) -> None:
        """Hold a device of the core; `serve` makes one."""
        self._live = live
        self._device = device
        self._said = dict(said)
        self._temporary = temporary
        self._result: Result | None = None
        #: Where clients find it, in the order in which the exports were asked for.
        self.paths: list[str] = []
        #: The command of a virtual machine that has it as its eMMC card; None unless it is served so.
        self.qemu: str | None = None
        #: Where it is mounted.
        self.mounted: str | None = None
        #: Figures of making and mounting a file system, which the result leaves out; None where neither was.
        self.prepared: Result | None = None
        #: Figures of the device's own work after that (`settle`), which the result leaves out, too.
        self.settled: Result | None = None
        self._record: Path | None = None
        #: Requests before this simulated time (of mkfs and mount) are in neither the result nor the trace.
        self._counted_from_s = 0.0

    @property
    def path(self) -> str:
        """What a client opens.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.path.startswith("nbd+unix://")
        True
        """
        return self.paths[0]

    @property
    def device(self) -> Device:
        """The settings.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.device.name
        'small-1gb'
        """
        return self._device

    @property
    def capacity_bytes(self) -> int:
        """Size, as a client sees it.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.capacity_bytes == disk.device.capacity_bytes
        True
        """
        return self._live.capacity

    @property
    def found(self) -> dict[str, Any]:
        """What was found of an earlier run: `image`, `clean`, `units_entered`.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.found["image"]
        False
        """
        found: dict[str, Any] = json.loads(self._live.found())
        return found

    def stats(self) -> dict[str, Any]:
        """Return figures: totals, and those of the time since the last call (`interval_*`, `response_*`).

        Raises:
            EmmclabError: the service has failed, as by a broken invariant under `check`.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.stats()["powered"]
        True
        """
        self._live.check()
        status: dict[str, Any] = json.loads(self._live.status())
        return status

    def result(self) -> Result:
        """Sum up the run so far, as a simulation is summed up; with a file system, since it was mounted.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.result()["requests.total"]
        0
        """
        return self._result or self._sum(self._live.result())

    def _sum(self, text: str) -> Result:
        return Result({"trace": "live", **json.loads(text), "options": self._said})

    def clear_counters(self) -> None:
        """Have result and recorded trace begin now; what was served before is in neither.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.clear_counters()
        ...     disk.result()["requests.total"]
        0
        """
        self._live.clear_counters()
        self._counted_from_s = json.loads(self._live.status())["simulated_s"]

    def settle(self) -> Result:
        """Have the device end its own work on what was written so far: write-back, folding, idle collection.

        Simulated time goes on without requests until nothing changes, which takes about a second of the
        host. On a free clock without `think` time stands still, and nothing is done. Result and trace
        begin after it. Returns the figures of that work.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.settle()["flash.page_programs.total"]
        0
        """
        self.clear_counters()
        clock = self.stats()["clock"]
        if clock != "free" or self._said["think"]:
            self.set("clock", _FAST)
            before, same = None, 0
            for _ in range(_MOST_LOOKS):
                time.sleep(_LOOK_S)
                now = self.result()["flash"]
                before, same = now, same + 1 if now == before else 0
                if same == _SAME_LOOKS:
                    break
            self.set("clock", clock)
        found = self.result()
        self.clear_counters()
        return found

    def drain(self) -> Result:
        """Have the layers move all data that they keep aside; the result's `run.drain_s` is the time of that.

        A later `result` has that time only if no request came in between, as those of a mounted file system.

        Raises:
            ConfigError: the clock is not `free`, or requests are under way.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.drain()["run.drain_s"]
        0.0
        """
        return self._sum(self._live.drain())

    def make_plain(self) -> None:
        """Have the layers move all data to its place: the image is then one of a device without layers.

        Nothing may be sent after it; it ends with `stop`.

        Raises:
            ConfigError: the clock is not `free`, or requests are under way.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", layers=["advil"], clock="free", nbd="auto") as disk:
        ...     disk.make_plain()
        """
        self._live.make_plain()

    def news(self) -> list[str]:
        """Return what exports had to say since the last call, as that a guest has connected.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.news()
        []
        """
        return self._live.news()

    def cut(self) -> None:
        """Cut the power: what was not programmed is lost; requests fail until `restore`.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.cut()
        ...     disk.stats()["powered"]
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

    def mark(self, name: str) -> None:
        """Return this place in the crash log a name.

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
        """Bring the power back.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.cut()
        ...     disk.restore()
        ...     disk.stats()["powered"]
        True
        """
        self._live.restore()

    def set(self, key: str, value: str) -> None:
        """Change a setting of the running device, one of `CHANGING`: a time, a limit, a lie; or the `clock`.

        The result names each change with its time, in `setting_changes`.

        Raises:
            ConfigError: the setting cannot change while the device is served, or not to this value.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.set("clock", "x0.1")
        ...     disk.set("controller.write_overhead_us", "250")
        ...     disk.stats()["clock"], disk.result()["setting_changes"][0]["to"]
        ('x0.1', '250.0')
        """
        refuse_lines({key: value})
        self._live.set(key, value)

    def mount(
        self, folder: str | PathLike[str], *, options: str | None = None, partition: int | None = None
    ) -> None:
        """Mount the file system on the loop device, or on a partition of it, at a folder.

        `options` are those that `mount -o` takes.

        Raises:
            ConfigError: there is no loop device.
            EmmclabError: there is no file system on it that the kernel knows.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.mount("/mnt/phone")
        Traceback (most recent call last):
        ...
        emmclab.errors.ConfigError: there is no loop or ublk device
        """
        self._live.mount(fspath(folder), options=options, partition=partition)
        self.mounted = fspath(folder)

    def add_partition(
        self, number: int, first_sector: int, sectors: int, *, mkfs: str, mkfs_options: Sequence[str] = ()
    ) -> None:
        """Have the kernel show a part of the loop device as partition `number`, with a new file system.

        No table is written; the partition is there as long as the device is served.

        Raises:
            ConfigError: there is no loop device, or no such file system.
            EmmclabError: the part is taken, or does not lie on the device.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.add_partition(1, 2048, 65536, mkfs="ext4")
        Traceback (most recent call last):
        ...
        emmclab.errors.ConfigError: there is no loop or ublk device
        """
        self._live.add_partition(number, first_sector, sectors)
        self._live.mkfs(mkfs, options=list(mkfs_options), overwrite=True, partition=number)

    def unmount(self) -> None:
        """Unmount all file systems; their data is on the device when this returns.

        Raises:
            EmmclabError: processes keep it busy; the message names them.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.unmount()
        Traceback (most recent call last):
        ...
        emmclab.errors.ConfigError: there is no loop or ublk device
        """
        self._live.unmount()
        self.mounted = None

    def run(self, command: Sequence[str]) -> int:
        """Run a command on the loop or ublk device, which `EMMCLAB_DEVICE` and `EMMCLAB_MOUNT` name for it.

        Returns its exit status, or 128 and the signal that ended it.

        Raises:
            ConfigError: there is no loop or ublk device.

        >>> import emmclab
        >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
        ...     disk.run(["true"])
        Traceback (most recent call last):
        ...
        emmclab.errors.ConfigError: there is no loop or ublk device
        """
        return self._live.run(list(command))

    def stop(self) -> Result:
        """End in good order: unmount, save image and state; return the result of the run.

        >>> import emmclab
        >>> emmclab.serve("small-1gb", clock="free", nbd="auto").stop()["device"]
        'small-1gb'
        """
        if self._result is None:
            try:
                self._result = self._sum(self._live.stop())
                if self._record is not None and self._counted_from_s > 0:
                    keep_from(self._record, self._counted_from_s)
            finally:
                if self._temporary is not None:
                    shutil.rmtree(self._temporary, ignore_errors=True)
        return self._result

    def __enter__(self) -> LiveDevice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<LiveDevice {self._device.name!r} at {', '.join(self.paths)}>"


def _cleaner() -> list[str]:
    """Return the command that deletes a ublk device whose process was killed."""
    import sys  # Not for those who serve something else.

    return [sys.executable, "-c", _CLEANER, str(Path(__file__).absolute().parents[1])]


def serve(
    device: Device | str,
    *,
    layers: Sequence[str] = (),
    layer_settings: Mapping[str, Setting] | None = None,
    nbd: str | PathLike[str] | None = None,
    tcp: str | None = None,
    sdhci: str | PathLike[str] | None = None,
    file: bool = False,
    loop: bool | None = None,
    ublk: bool = False,
    partitions: bool = False,
    mkfs: str | None = None,
    mkfs_options: Sequence[str] = (),
    overwrite: bool = False,
    dirty_bytes: int | None = None,
    mount: str | PathLike[str] | None = None,
    mount_options: str | None = None,
    image: str | PathLike[str] | None = None,
    second: Device | str | None = None,
    second_image: str | PathLike[str] | None = None,
    clock: str = "real",
    think: bool = False,
    precondition: str = "none",
    seed: int = 1,
    images: str | PathLike[str] | None = None,
    images_limit: int | None = None,
    record: str | PathLike[str] | None = None,
    log: str | PathLike[str] | None = None,
    check: bool = False,
) -> LiveDevice:
    """Serve a simulated device as a block device of this machine.

    Without `nbd`, `tcp`, `sdhci`, `file`, `loop` or `ublk` it is a loop device for root, else a file.

    Args:
        device: the device, or the name of a preset or TOML file.
        layers: names of layers above it, the first on top; they recover after a cut of power.
        layer_settings: their settings, as `{"advil.reserved": "256MiB"}`.
        nbd: unix socket of an NBD server; `auto` is one in a folder of its own.
        tcp: loopback address of an NBD server, as `127.0.0.1:10809`.
        sdhci: vfio-user socket at which QEMU (10.1 or later) finds the device as an eMMC card behind an SD
            host controller; the guest's memory must be shared.
        file: offer it as a file of a FUSE file system.
        loop: offer it as a loop device (`/dev/loopN`; needs root), through such a file.
        ublk: offer it as a ublk device (`/dev/ublkbN`; needs root and Linux 6.0 or later with `ublk_drv`),
            which tells FUA apart from flushes.
        partitions: whether the loop device has partitions: those of a table on it, and those that
            `add_partition` adds.
        mkfs: make this file system on the loop or ublk device: ext4, xfs, btrfs, f2fs or vfat.
        mkfs_options: more options of its `mkfs` tool.
        overwrite: whether `mkfs` may overwrite a file system that is there.
        dirty_bytes: most data of the loop device in the host's page cache that is yet to be written, as the
            small memory of a phone has it; by default what the host allows.
        mount: folder to mount the loop or ublk device at.
        mount_options: as `mount -o` takes them.
        image: file of the contents, kept with the device's state beside it (`IMAGE.state`); else both are
            gone at the end.
        second: a device beside it, for layers that use one.
        second_image: as `image`, of the second device; needed where both are given.
        clock: `real` (requests take the time that the device takes), `free` (no time; simulated time goes
            on only while requests are served), or `x0.1` (ten times as fast as real).
        think: on a free clock, count the time of the host between requests.
        precondition: data on the device before its first use, as in `Device.simulate`.
        seed: seed of random preconditioning.
        images: folder that keeps preconditioned devices.
        images_limit: most bytes of `images`.
        record: trace to write, with the times of the simulation; by the ending of its name. It holds what the
            result counts: without making and mounting a file system, and what the device does with its data.
        log: crash log to write, for `emmclab crash`: every command with its data.
        check: check every invariant of the device after each command (slow).

    Raises:
        ConfigError: a setting or option is impossible, or the image is of another device or in use.
        UnsupportedError: this machine has no FUSE, loop device, ublk or tool that is needed.

    >>> import emmclab
    >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
    ...     disk.path.startswith("nbd+unix://")
    True
    """
    config = Device.named(device) if isinstance(device, str) else device
    aging = no_trace(precondition, "a served device").text
    beside = Device.named(second) if isinstance(second, str) else second
    needs_disk = mkfs is not None or mount is not None
    if loop is None:
        loop = not ublk and (needs_disk or (not (nbd or tcp or sdhci or file) and os.geteuid() == 0))
    if loop and ublk:
        raise ConfigError(
            "a device is either a loop device or a ublk device",
            kind="config",
            field="ublk",
            hint="leave one of them out",
        )
    if needs_disk and not (loop or ublk):
        raise ConfigError(
            "a file system needs a loop or ublk device",
            kind="config",
            field="loop",
            hint="give --loop or --ublk, as root",
        )
    if mkfs is not None and mkfs not in FILE_SYSTEMS:
        raise ConfigError(
            f"there is no file system `{mkfs}`",
            kind="config",
            field="mkfs",
            hint=f"use {', '.join(FILE_SYSTEMS)}",
        )
    file = file or not (nbd or tcp or sdhci or loop or ublk)
    live = _core.Live(
        config._config,
        {"precondition": aging, "seed": seed},
        clock=clock,
        think=think,
        layers=stack(layers, layer_settings or {}),
        image=None if image is None else fspath(image),
        second=None if beside is None else beside._config,
        second_image=None if second_image is None else fspath(second_image),
        record=None if record is None else fspath(record),
        log=None if log is None else fspath(log),
        check=check,
        images=None if images is None else fspath(images),
        images_limit=images_limit,
    )
    said: dict[str, Any] = {"clock": clock, "think": think, "precondition": aging, "seed": seed}
    said |= {"check": check, "image": None if image is None else fspath(image)}
    # Options of a replay that a live run has no choice of.
    said |= {"rate": 1.0, "passes": 1, "wrap_addresses": False, "drain": False}
    if layers:
        said |= {"layers": list(layers), "layer_settings": dict(layer_settings or {})}
        said["second"] = None if beside is None else beside.name
    temporary = None
    if nbd == "auto":
        import tempfile  # Not for those who serve nothing.

        temporary = tempfile.mkdtemp(prefix="emmclab-")
    served = LiveDevice(live, config, said, temporary)
    served._record = None if record is None else Path(record)
    try:
        if loop or ublk:
            if ublk:
                path = live.serve_ublk(cleaner=_cleaner())
            else:
                path = live.serve_loop(partitions=partitions, dirty_bytes=dirty_bytes)
            served.paths.append(fspath(path))
            if mkfs is not None:
                live.mkfs(mkfs, options=list(mkfs_options), overwrite=overwrite)
            if mount is not None:
                served.mount(mount, options=mount_options)
            if needs_disk:
                served.prepared = served.result()
                served.settled = served.settle()
        if file and not loop:
            served.paths.append(fspath(live.serve_file()))
        if nbd:
            socket = fspath(nbd) if temporary is None else f"{temporary}/nbd.sock"
            served.paths.append(live.serve_nbd(path=socket))
        if tcp:
            served.paths.append(live.serve_nbd(tcp=tcp))
        if sdhci:
            live.serve_sdhci(fspath(sdhci))
            served.paths.append(fspath(sdhci))
            served.qemu = qemu_command(sdhci)
    except BaseException:
        served.stop()
        raise
    return served


def require_loop() -> None:
    """Refuse to serve loop devices where this machine or user cannot.

    Raises:
        UnsupportedError: no root, FUSE or loop devices.
    """
    devices = [path for path in ("/dev/fuse", "/dev/loop-control") if not Path(path).exists()]
    if os.geteuid() != 0 or devices:
        missing = ", ".join(devices) if devices else "root"
        raise UnsupportedError(
            f"this mounts file systems on served devices, which takes {missing}",
            kind="unsupported",
            hint="run it as root on Linux with FUSE and loop devices",
        )


def require_tools(needs: Mapping[str, str]) -> None:
    """Refuse to go on without tools, each given with its Debian package.

    Raises:
        UnsupportedError: one is missing.
    """
    for tool, package in needs.items():
        if _found(tool) is None:
            raise UnsupportedError(
                f"`{tool}` is not installed",
                kind="unsupported",
                hint=f"install the Debian package {package}, or run `scripts/setup.sh dev`",
            )


def _found(tool: str) -> str | None:
    return shutil.which(tool, path=os.environ.get("PATH", os.defpath) + MORE_PATH)

"""A simulated device as a block device that other software uses.

>>> import emmclab
>>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
...     disk.path.startswith("nbd+unix://"), disk.stats()["requests"]
(True, 0)
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path

from emmclab import _core
from emmclab.errors import ConfigError, InputError, UnsupportedError
from emmclab.live.device import LiveDevice
from emmclab.live.qemu import qemu_command
from emmclab.runtime.lists import Names, several
from emmclab.simulation.device import Device
from emmclab.simulation.layers import Setting, stack
from emmclab.simulation.preconditioning import no_trace
from emmclab.simulation.result_options import ResultOptions

#: File systems that can be made on a loop or ublk device.
FILE_SYSTEMS = ("ext4", "xfs", "btrfs", "f2fs", "vfat")
#: Python code that another process runs after this one was killed; its arguments are the package's folder and
#: the number of the ublk device.
_CLEANER = """import sys
sys.path.insert(0, sys.argv[1])
from emmclab import _core
_core.delete_left_ublk(int(sys.argv[2]))"""
#: Folders of tools that are not in every user's PATH.
MORE_PATH = ":/usr/sbin:/sbin"


def _cleaner() -> list[str]:
    """Return the command that deletes a ublk device whose process was killed."""
    import sys  # Imported here: only ublk devices need it.

    return [sys.executable, "-c", _CLEANER, str(Path(__file__).absolute().parents[1])]


def serve(
    device: Device | str,
    *,
    layers: Names = (),
    layer_settings: Mapping[str, Setting] | None = None,
    nbd: str | PathLike[str] | None = None,
    tcp: str | None = None,
    sdhci: str | PathLike[str] | None = None,
    file: bool = False,
    loop: bool | None = None,
    ublk: bool = False,
    partitions: bool = False,
    mkfs: str | None = None,
    mkfs_options: Names = (),
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
        layer_settings: their settings, for example `{"advil.reserved": "256MiB"}`.
        nbd: unix socket of an NBD server; `auto` makes one in a temporary folder.
        tcp: loopback address of an NBD server, as `127.0.0.1:10809`.
        sdhci: vfio-user socket at which QEMU (10.1 or later) finds the device as an eMMC card behind an SD
            host controller; the guest's memory must be shared.
        file: offer it as a file of a FUSE file system.
        loop: offer it as a loop device (`/dev/loopN`; needs root), through such a file.
        ublk: offer it as a ublk device (`/dev/ublkbN`; needs root and Linux 6.0 or later with `ublk_drv`),
            which distinguishes FUA from flushes.
        partitions: whether the loop device has partitions: those of a table on it, and those that
            `add_partition` adds.
        mkfs: make this file system on the loop or ublk device: ext4, xfs, btrfs, f2fs or vfat.
        mkfs_options: more options of its `mkfs` tool.
        overwrite: whether `mkfs` may overwrite a file system that is there.
        dirty_bytes: limit of dirty data of the loop device in the host's page cache, to imitate the small
            memory of a phone; default: the limit of the host.
        mount: folder to mount the loop or ublk device at.
        mount_options: in the form of `mount -o`.
        image: file that stores the contents; `IMAGE.state` stores the state of the device. Without it, both
            are discarded at the end.
        second: a second device, for layers that use one.
        second_image: as `image`, for the second device; required if `image` and `second` are given.
        clock: `real` (requests take as long as on the device), `free` (no time; simulated time
            advances only while requests are served), or `x0.1` (ten times as fast as real).
        think: on a free clock, count the time of the host between requests.
        precondition: data on the device before its first use, as in `Device.simulate`.
        seed: seed of random preconditioning.
        images: folder that stores preconditioned devices for later runs.
        images_limit: maximum size of `images`, bytes.
        record: trace to write, with simulated times; the ending selects the format. It has the requests that
            the result counts, so not those of making and mounting a file system.
        log: crash log to write, for `emmclab crash`: every command with its data; not an existing one.
        check: check every invariant of the device after each command (slow).

    Raises:
        ConfigError: a setting or option is impossible, or the image is of another device or in use.
        InputError: the log exists.
        UnsupportedError: this machine has no FUSE, loop device, ublk or tool that is needed.

    >>> import emmclab
    >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
    ...     disk.path.startswith("nbd+unix://")
    True
    """
    require_servable(clock=clock, tcp=tcp, mkfs=mkfs, mount=mount)
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
    file = file or not (nbd or tcp or sdhci or loop or ublk)
    above = several(layers)
    if log is not None:
        _require_new(log)
    live = _core.Live(
        config._config,
        {"precondition": aging, "seed": seed},
        clock=clock,
        think=think,
        layers=stack(above, layer_settings or {}),
        image=None if image is None else fspath(image),
        second=None if beside is None else beside._config,
        second_image=None if second_image is None else fspath(second_image),
        record=None if record is None else fspath(record),
        log=None if log is None else fspath(log),
        check=check,
        images=None if images is None else fspath(images),
        images_limit=images_limit,
    )
    said: ResultOptions = {
        "clock": clock,
        "think": think,
        "precondition": aging,
        "seed": seed,
        "check": check,
        "image": None if image is None else fspath(image),
        # Options of a replay, which have fixed values in a live run.
        "rate": 1.0,
        "passes": 1,
        "wrap_addresses": False,
        "drain": False,
    }
    if above:
        said["layers"] = above
        said["layer_settings"] = dict(layer_settings or {})
        said["second"] = None if beside is None else beside.name
    temporary = None
    if nbd == "auto":
        import tempfile  # Imported here: only this option needs it.

        temporary = tempfile.mkdtemp(prefix="emmclab-")
    served = LiveDevice(live, config, said, temporary)
    try:
        if loop or ublk:
            if ublk:
                path = live.serve_ublk(cleaner=_cleaner())
            else:
                path = live.serve_loop(partitions=partitions, dirty_bytes=dirty_bytes)
            served.paths.append(fspath(path))
            if mkfs is not None:
                live.mkfs(mkfs, options=several(mkfs_options), overwrite=overwrite)
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
        served.abort()
        if log is not None:
            Path(log).unlink(missing_ok=True)
        raise
    return served


def require_servable(
    *, clock: str, tcp: str | None, mkfs: str | None, mount: str | PathLike[str] | None
) -> None:
    """Reject impossible options of `serve`, before the device is prepared.

    Raises:
        ConfigError: there is no such clock, address or file system.
        InputError: there is no such folder.

    >>> require_servable(clock="real", tcp="127.0.0.1:10809", mkfs="ext4", mount=None)
    >>> require_servable(clock="real", tcp=None, mkfs="ext5", mount=None)
    Traceback (most recent call last):
        ...
    emmclab.errors.ConfigError: there is no file system `ext5`
    """
    _core.Live.require(clock=clock, tcp=tcp)
    if mkfs is not None and mkfs not in FILE_SYSTEMS:
        raise ConfigError(
            f"there is no file system `{mkfs}`",
            kind="config",
            field="mkfs",
            hint=f"use {', '.join(FILE_SYSTEMS)}",
        )
    # The folder itself is made if it is missing.
    if mount is not None and not Path(mount).absolute().parent.is_dir():
        raise InputError(
            f"{fspath(mount)}: the parent folder was not found",
            kind="io",
            file=fspath(mount),
            hint="make it, or check the path",
        )


def _require_new(log: str | PathLike[str]) -> None:
    """Reject a log that exists and is not empty: it would be lost, even if the start fails.

    Raises:
        InputError: there is such a log, or the path is that of a folder or of another kind of file.
    """
    path = Path(log)
    if path.exists() and not (path.is_file() and path.stat().st_size == 0):
        raise InputError.of(FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)), log)


def require_loop() -> None:
    """Raise an error if this machine or user cannot serve loop devices.

    Raises:
        UnsupportedError: no root, FUSE or loop devices.
    """
    devices = [path for path in ("/dev/fuse", "/dev/loop-control") if not Path(path).exists()]
    if os.geteuid() != 0 or devices:
        missing = ", ".join(devices) if devices else "root"
        raise UnsupportedError(
            f"this mounts file systems on served devices, which needs {missing}",
            kind="unsupported",
            hint="run it as root on Linux with FUSE and loop devices",
        )


def require_tools(needs: Mapping[str, str]) -> None:
    """Raise an error if a tool is missing; `needs` has each tool with its Debian package.

    Raises:
        UnsupportedError: one is missing.
    """
    for tool, package in needs.items():
        if _find_tool(tool) is None:
            raise UnsupportedError(
                f"`{tool}` is not installed",
                kind="unsupported",
                hint=f"install the Debian package {package}, or run `scripts/setup.sh dev`",
            )


def _find_tool(tool: str) -> str | None:
    return shutil.which(tool, path=os.environ.get("PATH", os.defpath) + MORE_PATH)

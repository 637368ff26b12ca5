"""A simulated device as a block device that other software uses.

>>> import emmclab
>>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
...     disk.path.startswith("nbd+unix://"), disk.stats().requests
(True, 0)
"""

import errno
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, TypedDict, Unpack

from emmclab import _core
from emmclab.errors import ConfigError, InputError, UnsupportedError
from emmclab.live.device import LiveDevice, ServedDisk
from emmclab.runtime.lists import Names
from emmclab.runtime.option import Option, attributes, complete, declarations
from emmclab.simulation.device import Device
from emmclab.simulation.layers import Setting, stack
from emmclab.simulation.run_options import RUN_OPTIONS, no_trace


def qemu_command(socket: str | PathLike[str]) -> str:
    """Return the command of QEMU (10.1 or later) for a guest with the card at this socket.

    The options for kernel and disk have to be added. The memory of the guest is shared, so that the card can
    transfer data.

    >>> '"path":"/run/card"' in qemu_command("/run/card")
    True
    """
    card = {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": str(Path(fspath(socket)).absolute())}}
    memory = "-m 1G -object memory-backend-memfd,id=ram,size=1G,share=on -machine q35,memory-backend=ram"
    return f"qemu-system-x86_64 {memory} -device {shlex.quote(json.dumps(card, separators=(',', ':')))}"


#: Names of the option panels in the help of commands that serve devices.
WHERE, TIME, RUN = "Access for clients", "Time", "The run"
_port, _time, _run = (partial(Option, panel=panel) for panel in (WHERE, TIME, RUN))
#: Path of a file; None for no file.
_Path = str | PathLike[str] | None
#: File systems that can be made on a loop or ublk device.
FILE_SYSTEMS = ("ext4", "xfs", "btrfs", "f2fs", "vfat")
#: Python code that another process runs after this one was killed, to delete its ublk device; the arguments are the
#: package's folder and the number of the device.
_CLEANER = """import sys
sys.path.insert(0, sys.argv[1])
from emmclab import _core
_core.delete_left_ublk(int(sys.argv[2]))"""
#: Folders with administration tools, which are not in every user's PATH.
MORE_PATH = ":/usr/sbin:/sbin"


class ServeOptions(TypedDict, total=False):
    """The options of `serve`; omitted options have their defaults."""

    layers: Annotated[Names, RUN_OPTIONS["layers"]]
    layer_settings: Annotated[Mapping[str, Setting] | None, RUN_OPTIONS["layer_settings"]]
    second: Annotated[Device | str | None, RUN_OPTIONS["second"]]
    nbd: Annotated[_Path, _port(None, "Unix socket of an NBD server.", metavar="SOCKET")]
    tcp: Annotated[
        str | None, _port(None, "Loopback address of an NBD server.", metavar="127.0.0.1:PORT", advanced=True)
    ]
    sdhci: Annotated[
        _Path,
        _port(
            None,
            "vfio-user socket: an eMMC card with an SD host controller, for QEMU 10.1 or later.",
            metavar="SOCKET",
            advanced=True,
        ),
    ]
    loop: Annotated[
        bool | None, _port(None, "A loop device, /dev/loopN (root); the default for root.", command_default=False)
    ]
    ublk: Annotated[
        bool, _port(False, "A ublk device, /dev/ublkbN (root; Linux 6.0 or later, ublk_drv).", advanced=True)
    ]
    file: Annotated[bool, _port(False, "A file of a FUSE file system.", advanced=True)]
    partitions: Annotated[
        bool,
        Option(
            False,
            "Whether the loop device shows partitions, those of its partition table and those of `add_partition`.",
            option=None,
        ),
    ]
    mkfs: Annotated[
        str | None,
        _port(None, "Make a file system: ext4, xfs, btrfs, f2fs, vfat.", metavar="NAME", completes="filesystem_names"),
    ]
    mkfs_options: Annotated[
        Names, _port((), "Option for mkfs; may be repeated.", option="--mkfs-option", metavar="OPTION", advanced=True)
    ]
    overwrite: Annotated[bool, _port(False, "Let --mkfs overwrite an existing file system.", advanced=True)]
    dirty_bytes: Annotated[
        int | None,
        Option(
            None,
            "Limit of dirty data of the loop device in the page cache, to imitate the small memory of a "
            "phone; default: the limit of the machine.",
            option=None,
        ),
    ]
    readahead_kb: Annotated[
        int | None, Option(None, "Largest window of read-ahead of the loop device in KB; default: 128.", option=None)
    ]
    mount: Annotated[_Path, _port(None, "Mount the file system at this folder.", metavar="DIR")]
    mount_options: Annotated[
        str | None, _port(None, "Mount options, in the form of `mount -o`.", metavar="LIST", advanced=True)
    ]
    clock: Annotated[
        str,
        _time(
            "real",
            "real: requests take the time of the device; free: no time; x0.1: ten times as fast.",
            metavar="real|free|xFACTOR",
            completes=("real", "free"),
        ),
    ]
    think: Annotated[bool, _time(False, "On a free clock, count the host's time between requests.", advanced=True)]
    image: Annotated[_Path, _run(None, "File that stores the contents of the device; FILE.state stores its state.")]
    second_image: Annotated[
        _Path, _run(None, "File that stores the contents of the second device.", option="--image2", advanced=True)
    ]
    precondition: Annotated[str, replace(RUN_OPTIONS["precondition"], advanced=True)]
    seed: Annotated[int, Option(1, "Seed of the random numbers of preconditioning.", least=0, advanced=True)]
    images: Annotated[_Path, RUN_OPTIONS["images"]]
    images_limit: Annotated[int | None, RUN_OPTIONS["images_limit"]]
    check: Annotated[bool, RUN_OPTIONS["check"]]
    record: Annotated[
        _Path, _run(None, "Trace to write, with the simulated times; without mkfs and mount.", writes=True)
    ]
    log: Annotated[
        _Path, Option(None, "New file for a crash log for `emmclab crash`: every command with its data.", option=None)
    ]


#: Declarations of the options of `serve`, by name.
SERVE_OPTIONS = declarations(ServeOptions)
ServeOptions.__doc__ = f"{ServeOptions.__doc__}\n\n{attributes(SERVE_OPTIONS)}"


def serve(device: Device | str, **options: Unpack[ServeOptions]) -> LiveDevice:
    """Serve a simulated device as a block device of this machine.

    Without `nbd`, `tcp`, `sdhci`, `file`, `loop` or `ublk`, root gets a loop device, other users a file. `nbd` may be
    `auto`: a socket in a temporary folder. Without `image`, contents and state are discarded at the end; with `image`
    and `second`, `second_image` is required. `record` writes the requests that the result counts, without those for
    creating and mounting a file system.

    Args:
        device: the device, or the name of a preset or TOML file.
        options: see `ServeOptions`.

    Raises:
        ConfigError: a setting or option is impossible, or the image belongs to another device or is in use.
        InputError: the log exists.
        UnsupportedError: this machine has no FUSE, loop device, ublk or tool that is needed.

    >>> import emmclab
    >>> with emmclab.serve("small-1gb", clock="free", nbd="auto") as disk:
    ...     disk.path.startswith("nbd+unix://")
    True
    """
    values = complete(SERVE_OPTIONS, options, "a served device")
    require_servable(clock=values["clock"], tcp=values["tcp"], mkfs=values["mkfs"], mount=values["mount"])
    config = Device.named(device) if isinstance(device, str) else device
    second, layers, settings = values["second"], values["layers"], values["layer_settings"] or {}
    aging = no_trace(values["precondition"], "a served device").text
    second_device = Device.named(second) if isinstance(second, str) else second
    loop, file = exports_of(values)
    log = values["log"]
    if log is not None:
        _require_new(log)
    files = {
        name: None if values[name] is None else fspath(values[name])
        for name in ("image", "second_image", "record", "log", "images")
    }
    live = _core.Live(
        config._config,
        {"precondition": aging, "seed": values["seed"]},
        layers=stack(layers, settings),
        second=None if second_device is None else second_device._config,
        images_limit=values["images_limit"],
        clock=values["clock"],
        think=values["think"],
        check=values["check"],
        **files,
    )
    run_options: dict[str, Any] = {
        "clock": values["clock"],
        "think": values["think"],
        "precondition": aging,
        "seed": values["seed"],
        "check": values["check"],
        "image": files["image"],
        # These replay options have fixed values in a live run.
        "rate": 1.0,
        "passes": 1,
        "wrap_addresses": False,
        "drain": False,
    }
    if layers:
        run_options["layers"] = layers
        run_options["layer_settings"] = dict(settings)
        run_options["second"] = None if second_device is None else second_device.name
    served = LiveDevice(live, config, run_options)
    try:
        export(live, served, values, loop=loop, file=file)
    except BaseException:
        served.abort()
        if log is not None:
            Path(log).unlink(missing_ok=True)
        raise
    return served


def export(live: _core.Exports, served: ServedDisk, values: Mapping[str, Any], *, loop: bool, file: bool) -> None:
    """Export a device in the ways that the options of `serve` request."""
    nbd, sdhci, mkfs, mount = (values[name] for name in ("nbd", "sdhci", "mkfs", "mount"))
    if loop or values["ublk"]:
        if values["ublk"]:
            import sys  # Imported here: only ublk devices need it.

            # The command line of a helper that deletes the ublk device if this process is killed.
            cleaner = [sys.executable, "-c", _CLEANER, str(Path(__file__).absolute().parents[1])]
            path = live.serve_ublk(cleaner=cleaner)
        else:
            limits = {name: values[name] for name in ("partitions", "dirty_bytes", "readahead_kb")}
            path = live.serve_loop(**limits)
        served.paths.append(fspath(path))
        if mkfs is not None:
            live.mkfs(mkfs, options=values["mkfs_options"], overwrite=values["overwrite"])
        if mount is not None:
            served.mount(mount, options=values["mount_options"])
        if isinstance(served, LiveDevice) and (mkfs is not None or mount is not None):
            served.prepared = served.result()
            served.settled = served.settle()
    if file and not loop:
        served.paths.append(fspath(live.serve_file()))
    if nbd:
        served.paths.append(live.serve_nbd(path=served.socket(nbd)))
    if values["tcp"]:
        served.paths.append(live.serve_nbd(tcp=values["tcp"]))
    if sdhci:
        live.serve_sdhci(fspath(sdhci))
        served.paths.append(fspath(sdhci))
        served.qemu = qemu_command(sdhci)


def exports_of(values: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether the options request a loop device, and a file.

    Raises:
        ConfigError: the requested exports exclude each other, or a file system has no block device.
    """
    nbd, tcp, sdhci, file = (values[name] for name in ("nbd", "tcp", "sdhci", "file"))
    loop, ublk = values["loop"], values["ublk"]
    needs_disk = values["mkfs"] is not None or values["mount"] is not None
    if loop is None:
        loop = not ublk and (needs_disk or (not (nbd or tcp or sdhci or file) and os.geteuid() == 0))
    if loop and ublk:
        raise ConfigError(
            "a device cannot be both a loop and a ublk device", field="ublk", hint="leave out either --loop or --ublk"
        )
    if needs_disk and not (loop or ublk):
        raise ConfigError(
            "a file system needs a loop or ublk device", field="loop", hint="give --loop or --ublk, as root"
        )
    return loop, file or not (nbd or tcp or sdhci or loop or ublk)


def require_servable(*, clock: str, tcp: str | None, mkfs: str | None, mount: str | PathLike[str] | None) -> None:
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
        raise ConfigError(f"there is no file system `{mkfs}`", field="mkfs", hint=f"use {', '.join(FILE_SYSTEMS)}")
    # Only the parent folder must exist, because a missing mount folder is created.
    if mount is not None and not Path(mount).absolute().parent.is_dir():
        raise InputError("the parent folder was not found", hint="create the parent folder").in_file(fspath(mount))


def _require_new(log: str | PathLike[str]) -> None:
    """Reject a log that exists and is not empty: it would be overwritten, even if the start fails."""
    path = Path(log)
    if path.exists() and not (path.is_file() and path.stat().st_size == 0):
        raise InputError.of(FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)), log)


def require_loop() -> None:
    """Raise an error if this machine or user cannot serve loop devices.

    Raises:
        UnsupportedError: root, FUSE or loop devices are missing.
    """
    devices = [path for path in ("/dev/fuse", "/dev/loop-control") if not Path(path).exists()]
    if os.geteuid() != 0 or devices:
        missing = ", ".join(devices) if devices else "root"
        raise UnsupportedError(
            f"this command mounts file systems on served devices, which needs {missing}",
            hint="run emmclab as root on Linux with FUSE and loop devices",
        )


def require_tools(needs: Mapping[str, str]) -> None:
    """Raise an error if a tool is missing; `needs` has each tool with its Debian package.

    Raises:
        UnsupportedError: a tool is missing.
    """
    for tool, package in needs.items():
        if shutil.which(tool, path=os.environ.get("PATH", os.defpath) + MORE_PATH) is None:
            raise UnsupportedError(
                f"`{tool}` is not installed",
                hint=f"install the Debian package {package}, or run `scripts/setup.sh dev`",
            )

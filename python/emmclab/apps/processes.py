"""Applications as real processes: the threads of a program do real file operations on a served device."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict, Unpack

from emmclab import _core
from emmclab.apps.closed_loop import APPLICATION_OPTIONS, Agreement, AppOptions, AppResult, RunningOptions, program_of
from emmclab.errors import ConfigError
from emmclab.live.device import LiveDevice
from emmclab.live.serve import require_loop, require_tools, serve
from emmclab.runtime.option import complete
from emmclab.simulation.device import Device, setup_of

#: The default host model: all of its partitions have a file system that common kernels support.
LIVE_HOST = "phone-2020-ext4"
#: Kernel name and `mkfs` options of each file system. The options disable lazy initialisation and fix the block size or
#: FAT type, which `mkfs` would otherwise choose by the size of the partition.
_MKFS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ext4": ("ext4", ("-b", "4096", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0")),
    "fat32": ("vfat", ("-F", "32")),
}
#: Mount options of each file system, as on Android. Linux 5.10 and later read all bitmaps of ext4 in the first seconds
#: after the mount, and not when they are needed, as the kernels of phones and the model do.
_MOUNT = {"ext4": "noatime,noauto_da_alloc,no_prefetch_block_bitmaps", "fat32": "noatime"}
_TOOLS = {"mkfs.ext4": "e2fsprogs", "addpart": "util-linux"}


def run_live(
    name: str,
    device: Device | str,
    *,
    clock: str = "real",
    record: str | PathLike[str] | None = None,
    **options: Unpack[RunningOptions],
) -> AppResult:
    """Run an application on this machine: real file operations on file systems of a served device.

    Each partition of the host is a partition of the device. Files that exist before the run are written, and
    their file systems are mounted again, so that the page cache is empty when the program begins. Work on
    cores and network transfers only take the time that they take on the host; page cache, file systems and
    block layer are those of this machine.

    Args:
        name: an application that comes with emmclab, or the path of a TOML file.
        device: a device, or a name for `Device.named`.
        clock: clock of the device, as for `serve`.
        record: trace to write, without the preparation.
        options: see `ApplicationOptions`; of the kernel settings of the host only the limit of dirty data and the
            window of read-ahead are used.

    Raises:
        ConfigError: as in `run_application`; or this kernel does not support a file system of the host.
        UnsupportedError: root, FUSE, loop devices or a tool are missing.
    """
    require_loop()
    require_tools(_TOOLS)
    values = complete(APPLICATION_OPTIONS, {"host": LIVE_HOST, **options}, "an application")
    network, host, seed, precondition = (values[name] for name in ("network", "host", "seed", "precondition"))
    layer_settings, second = values["layer_settings"], values["second"]
    chosen = Device.named(device) if isinstance(device, str) else device
    others, layers = values["beside"], values["layers"]
    program, setup = program_of(name, others), setup_of(host)
    setup.check_network(network)
    second_device = Device.named(second) if isinstance(second, str) else second
    fields = AppOptions(
        precondition=precondition,
        layers=tuple(layers),
        layer_settings=layer_settings or {},
        second=None if second_device is None else second_device.name,
        beside=tuple(others),
        clock=clock,
    ).to_dict()
    with (
        TemporaryDirectory(prefix="emmclab-") as folder,
        serve(
            chosen,
            loop=True,
            partitions=True,
            clock="free",
            precondition=precondition,
            seed=seed,
            images=values["images"],
            record=record,
            dirty_bytes=setup.dirty_bytes(),
            readahead_kb=setup.readahead_kb(),
            layers=layers,
            layer_settings=layer_settings,
            second=second_device,
        ) as disk,
    ):
        places = _places(setup, disk, host)
        folders = [str(Path(folder, place["partition"])) for place in places]
        for number, place in enumerate(places, 1):
            kind, tables = _MKFS[place["filesystem"]]
            disk.add_partition(number, place["first_sector"], place["sectors"], mkfs=kind, mkfs_options=tables)
        _mount(disk, places, folders)
        _core.prepare_app(program, setup, disk.capacity_bytes, folders, seed)
        disk.unmount()
        disk.drain()
        disk.set("clock", clock)
        _mount(disk, places, folders)
        preparation = disk.result().to_dict()["requests"]
        # Writing the files has caused background work, which is not part of the run. It is finished here.
        disk.settle()
        request = {"network": network, "seed": seed, "limit_s": values["limit_s"], "what_if": []}
        request |= {name: fields[name] for name in ("filesystems", "synced")}
        app = _core.run_app_live(program, setup, disk.capacity_bytes, folders, request)
        result = disk.result()
        # Unmounting writes back the page cache. The run is over, so this need not take simulated time.
        with suppress(ConfigError):
            disk.set("clock", "free")
    return AppResult({"app": app, "device": result.to_dict(), "options": fields, "preparation": preparation})


def agreement(live: AppResult, model: AppResult) -> list[Agreement]:
    """Compare a run on a served device with a simulated run: a row for each figure, with model / live.

    The ratio is None if the figure of the run on the served device is 0.
    """
    figures: dict[tuple[str, str], Callable[[AppResult], float]] = {
        ("runtime", "s"): lambda run: run.runtime_s,
        ("reads", ""): lambda run: run.device.requests.read,
        ("writes", ""): lambda run: run.device.requests.write,
        ("read", "MB"): lambda run: run.device.requests.bytes_read / 2**20,
        ("written", "MB"): lambda run: run.device.requests.bytes_written / 2**20,
        ("syncs of files", ""): lambda run: run.app.file_syncs,
    }
    rows: list[Agreement] = []
    for (name, unit), figure in figures.items():
        real, modelled = figure(live), figure(model)
        ratio = modelled / real if real else None
        rows.append({"name": name, "unit": unit, "live": real, "model": modelled, "ratio": ratio})
    return rows


class Place(TypedDict):
    """A mounted partition of a host and its location on the device; `sectors` is its length."""

    partition: str
    filesystem: str
    first_sector: int
    sectors: int


def _places(setup: _core.HostSetup, disk: LiveDevice, host: str) -> list[Place]:
    """Return the mounted partitions of a host; reject file systems that the kernel does not support."""
    places: list[Place] = setup.places(disk.capacity_bytes)
    supported = Path("/proc/filesystems").read_text(encoding="utf-8").split()
    for place in places:
        kind = _MKFS.get(place["filesystem"], ("", ()))[0]
        if kind not in supported:
            raise ConfigError(
                f"partition `{place['partition']}` of the host `{host}` has {place['filesystem']}, which "
                "this kernel does not mount",
                field="--host",
                hint=f"use a host whose partitions have ext4, such as {LIVE_HOST}",
            )
    return places


def _mount(disk: LiveDevice, places: Sequence[Place], folders: Sequence[str]) -> None:
    for number, (place, folder) in enumerate(zip(places, folders, strict=True), 1):
        disk.mount(folder, options=_MOUNT[place["filesystem"]], partition=number)

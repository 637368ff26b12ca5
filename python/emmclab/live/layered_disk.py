"""Layers whose data is on disks of this machine, served as a block device."""

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Unpack

from emmclab import _core
from emmclab.core_types import LayeredDiskResult
from emmclab.errors import ConfigError
from emmclab.live.device import ServedDisk
from emmclab.live.serve import SERVE_OPTIONS, ServeOptions, export, exports_of, require_servable
from emmclab.runtime.option import complete
from emmclab.simulation.layers import stack

#: Options of `serve` that apply to layers above a disk; the others are for simulated devices.
OF_DISKS = frozenset(
    (
        *(
            "layers",
            "layer_settings",
            "nbd",
            "tcp",
            "loop",
            "ublk",
            "file",
            "partitions",
            "dirty_bytes",
            "readahead_kb",
        ),
        *("mkfs", "mkfs_options", "overwrite", "mount", "mount_options"),
    )
)


class LayeredDisk(ServedDisk):
    """Layers above one or two disks that are being served."""

    def __init__(self, live: _core.LayeredDisk) -> None:
        """Wrap opened disks of the Rust core; called by `serve_layers`."""
        super().__init__(live)
        self._live = live
        self._result: LayeredDiskResult | None = None

    def result(self) -> LayeredDiskResult:
        """Return the counts and response times so far.

        >>> import emmclab, pathlib
        >>> from emmclab.live.layered_disk import serve_layers
        >>> image = pathlib.Path("/var/tmp/emmclab-doctest-layers.img")
        >>> with image.open("wb") as file:
        ...     _ = file.truncate(1 << 30)
        >>> with serve_layers([image], erase=True, layers=["advil"], nbd="auto") as disk:
        ...     disk.result().requests
        0
        >>> image.unlink()
        """
        return self._result or LayeredDiskResult(self._live.result())

    def stop(self) -> LayeredDiskResult:
        """Unmount, make all data durable and close the disks; return the result of the run."""
        if self._result is None:
            try:
                self._result = LayeredDiskResult(self._live.stop())
            finally:
                self._remove_temporary()
        return self._result


def serve_layers(
    disks: Sequence[str | PathLike[str]], *, erase: bool = False, **options: Unpack[ServeOptions]
) -> LayeredDisk:
    """Serve layers whose data is on disks of this machine, and recover the data that they stored there before.

    The first MB of each disk contains a label with the layers and their settings. Requests are executed one at a time.

    Args:
        disks: the disk, and a second one for layers that use two; block devices, or files that are images of disks.
        erase: erase disks that have no label of layers, which are refused otherwise.
        options: see `ServeOptions`; options of simulated devices are refused.

    Raises:
        ConfigError: a disk is in use, contains other data than that of these layers, or an option is impossible.
        InputError: a disk cannot be read or written.
        UnsupportedError: this machine has no FUSE, loop device, ublk or tool that is needed.
    """
    values = complete(SERVE_OPTIONS, options, "a served disk")
    for name, value in values.items():
        if name not in OF_DISKS and value not in (SERVE_OPTIONS[name].default, []):
            raise ConfigError(
                f"`{name}` has an effect only on a simulated device", field=name, hint="leave it out, or name a device"
            )
    require_servable(clock=values["clock"], tcp=values["tcp"], mkfs=values["mkfs"], mount=values["mount"])
    loop, file = exports_of(values)
    layers = stack(values["layers"], values["layer_settings"] or {})
    live = _core.LayeredDisk([fspath(disk) for disk in disks], layers, erase)
    served = LayeredDisk(live)
    try:
        export(live, served, values, loop=loop, file=file)
    except BaseException:
        served.stop()
        raise
    return served

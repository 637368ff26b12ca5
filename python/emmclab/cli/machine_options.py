"""Command-line options that select the machine to record, and how long."""

import os
from dataclasses import dataclass
from typing import Annotated

from emmclab import _core
from emmclab.cli.failures import ended_by_signals
from emmclab.cli.options import option
from emmclab.errors import ConfigError

Device = Annotated[
    list[str] | None,
    option("Disk, partition, mapped device or mount point; may be repeated.", None, "--device", metavar="DEVICE"),
]
Duration = Annotated[
    str | None, option("Stop after this time, for example 60s, 10m or 2h; default: at Ctrl-C.", metavar="TIME")
]
Serial = Annotated[str | None, option("Serial number of the phone, if adb lists several.", metavar="SERIAL")]


@dataclass(frozen=True)
class Machine:
    """Command-line options that select the machine to record."""

    device: Device = None
    ssh: Annotated[
        str | None, option("Record another machine over ssh; nothing is written there.", metavar="USER@HOST")
    ] = None
    ssh_option: Annotated[
        list[str] | None, option("An argument for the ssh client, such as -p; may be repeated.", metavar="WORD")
    ] = None
    adb: Annotated[bool, option("Record the phone that is connected by adb; needs root there.")] = False
    serial: Serial = None
    buffer_kb: Annotated[
        int | None,
        option("Ring buffer of each CPU, 1 to 1048576 KB; a larger buffer loses fewer events.", metavar="KB"),
    ] = None

    def record(self) -> _core.Recorder:
        """Start the recording."""
        if self.buffer_kb is not None and not 1 <= self.buffer_kb <= 1 << 20:
            raise ConfigError(
                f"a buffer of {self.buffer_kb} KB is impossible", field="--buffer-kb", hint="give 1 to 1048576 KB"
            )
        remote = bool(self.ssh or self.adb or self.serial)

        def start() -> _core.Recorder:
            return _core.Recorder(
                [name if remote else _mount_point(name) for name in self.device or []],
                ssh=(self.ssh, list(self.ssh_option or [])) if self.ssh else None,
                adb=(self.serial or "") if self.adb or self.serial else None,
                buffer_kb=self.buffer_kb,
            )

        return ended_by_signals(start) if remote else start()


def _mount_point(name: str) -> str:
    """Resolve symbolic links in the path of a mount point, as the kernel lists it; return other names unchanged."""
    return os.path.realpath(name) if os.path.ismount(name) else name

"""Reads the health report of a real eMMC or SD card by one reading command.

The command moves 512 bytes from the device to the host and changes nothing. A report that needs a writing command, a
password or another mode first is never read.
"""

import ctypes
import fcntl
import os
import struct
from pathlib import Path

from emmclab.calibration.health import decode_health, format_named, split_format
from emmclab.core_types import HealthFormat, HealthReport
from emmclab.errors import ConfigError, InputError

#: MMC_IOC_CMD of linux/mmc/ioctl.h, and the struct mmc_ioc_cmd of 72 bytes that it takes.
_IOC_COMMAND = 0xC048B300
_COMMAND = struct.Struct("=2i2I4I3I2I3IQ")
#: Response R1 with a transfer of data (linux/mmc/core.h).
_R1_WITH_DATA = 0xB5
_BYTES = 512


def read_health_report(source: str, sysfs: Path = Path("/sys")) -> tuple[HealthReport, bytes]:
    """Read the health report of DEVICE@FORMAT, such as `/dev/mmcblk0@hynix-v1`, and return it with its bytes.

    Raises:
        ConfigError: emmclab does not read this format from devices, or the device is not one of its parts.
        InputError: the device refused the command.
        EmmclabError: the answer is not a report of this format.
    """
    device, name = split_format(source)
    form = format_named(name)
    command = form.command
    if command is None:
        raise ConfigError(
            f"the health report of {form.parts} is not read from a device: {form.unreadable}",
            field="--read-health",
            hint=f"read it with the program of {form.source}, and give the dump: --health FILE@{form.name}",
        )
    _require_part(device, form, sysfs)
    answer = ctypes.create_string_buffer(_BYTES)
    # write_flag 0: the data goes from the device to the host.
    request = _COMMAND.pack(
        0, 0, command.opcode, command.argument, *(0,) * 4, _R1_WITH_DATA, _BYTES, 1, *(0,) * 5, ctypes.addressof(answer)
    )
    try:
        handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(handle, _IOC_COMMAND, request)
        finally:
            os.close(handle)
    except OSError as error:
        raise InputError(
            f"{device}: the device refused CMD{command.opcode} (0x{command.argument:08x}): {error.strerror}",
            file=str(device),
            hint="the part has no report of this format, or this needs root",
        ) from error
    return decode_health(answer.raw, str(device), form.name), answer.raw


def _require_part(device: Path, form: HealthFormat, sysfs: Path) -> None:
    """Raise ConfigError unless sysfs says that a device is of the kind and the manufacturer of a format."""
    folder = sysfs / "block" / device.resolve().name / "device"
    try:
        kind, maker = (folder / "type").read_text().strip(), int((folder / "manfid").read_text(), 16)
    except (OSError, ValueError):
        raise ConfigError(
            f"{device}: this is no whole eMMC or SD card",
            file=str(device),
            field="--read-health",
            hint="give a disk such as /dev/mmcblk0, without a partition; a card reader at USB passes no commands on",
        ) from None
    makers = form.command.makers if form.command else []
    if kind != ("MMC" if makers else "SD") or (makers and maker not in makers):
        found = f"{'eMMC' if kind == 'MMC' else kind} of manufacturer 0x{maker:02x}"
        raise ConfigError(
            f"{device}: this is {found}, not one of {form.parts}: the command is not sent",
            file=str(device),
            field="--read-health",
            hint="other parts may take the command for something else",
        )

"""Chooses the capacity of a device whose power is cut: as small as possible."""

from emmclab.crash.promises import least_mb
from emmclab.errors import ConfigError
from emmclab.simulation.device import Device

#: The capacity that is tried first, in MB, because a small device is explored faster.
LEAST_MB = 256


def scaled_down(device: Device, file_system: str = "ext4") -> Device:
    """Scale a device to 256 MB, or to the smallest doubling that it and the file system support.

    Mapping schemes need blocks for logs independent of the capacity. A device without such
    a capacity is returned unchanged.

    >>> scaled_down(Device.preset("nexus5")).name, scaled_down(Device.preset("nexus5"), "xfs").name
    ('nexus5-256MB', 'nexus5-512MB')
    """
    megabytes = LEAST_MB
    while megabytes < least_mb(file_system):
        megabytes *= 2
    while megabytes << 20 < device.capacity_bytes:
        unit = f"{megabytes}MB" if megabytes < 1024 else f"{megabytes >> 10}GB"
        try:
            return device.with_capacity(unit)
        except ConfigError as error:
            if error.field != "capacity":
                raise
        megabytes *= 2
    return device

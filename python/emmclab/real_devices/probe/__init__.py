"""Measures from outside how a flash device is built: clustered page and clustered block, from bandwidths."""

from emmclab.real_devices.probe.page_and_block import Place, Point, Probe, ProbeProgress, block_size, page_size, probe
from emmclab.real_devices.probe.targets import Disk, Simulated, Target

__all__ = [
    "Disk",
    "Place",
    "Point",
    "Probe",
    "ProbeProgress",
    "Simulated",
    "Target",
    "block_size",
    "page_size",
    "probe",
]

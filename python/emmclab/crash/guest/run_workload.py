"""Runs a workload in a guest, on a device that is served to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from emmclab.crash.guest.kernel import Kernel
from emmclab.crash.guest.machine import Guest, GuestEndedError, nbd
from emmclab.crash.mounting import NotMountedError
from emmclab.errors import EmmclabError


@contextmanager
def mounted_in_guest(kernel: str, uri: str, file_system: str, options: str | None, folder: Path) -> Iterator[Guest]:
    """Boot a guest with a disk from an NBD server, and mount the disk; at the end the guest is powered off.

    Args:
        kernel: the kernel file.
        uri: as `nbd+unix:///?socket=PATH`.
        file_system: file system of the disk.
        options: mount options.
        folder: private folder for files of the guest.

    Raises:
        EmmclabError: the guest does not start, or its kernel does not mount the disk.
    """
    [socket] = parse_qs(urlsplit(uri).query)["socket"]
    with Guest(Kernel.of(kernel), file_system, nbd(socket), folder) as guest:
        try:
            guest.mount(options or "", set())
        except (NotMountedError, GuestEndedError) as error:
            raise EmmclabError(
                f"the guest does not mount {file_system}: {error}",
                kind="failed",
                hint="check --mount-options, or use another kernel",
            ) from None
        yield guest

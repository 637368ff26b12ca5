"""Mounts states in a guest: one boot serves many states; after a kernel crash, a new guest is booted."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from emmclab.crash.guest.kernel import Kernel
from emmclab.crash.guest.machine import Guest, GuestEndedError, GuestFiles, image
from emmclab.crash.mounting import NotMountedError, kind_of
from emmclab.crash.scratch_folders import in_memory, scratch


@contextmanager
def guest_of(kernel: str | None, size: int) -> "Iterator[GuestMounts | None]":
    """Provide a guest for images of `size` bytes, which boots on first use; `None` without a kernel."""
    if kernel is None:
        yield None
        return
    with scratch(in_memory(size)) as folder, GuestMounts(kernel, folder / "state.img") as guest:
        yield guest


class GuestMounts:
    """Mounts an image, which changes between two mounts; a context manager that ends the guest."""

    def __init__(self, kernel: str, disk: Path) -> None:
        """Set the paths of the kernel and the image; files of the guest are stored in the image's folder."""
        self.kernel, self.disk = kernel, disk
        self._guest: Guest | None = None
        self._end = ExitStack()

    def __enter__(self) -> "GuestMounts":
        return self

    def __exit__(self, *_ended: object) -> None:
        self._end.close()

    @contextmanager
    def mounted(self, read: set[int]) -> Iterator[GuestFiles]:
        """Mount the image; add the blocks that were read to `read`.

        Raises:
            NotMountedError: the guest's kernel refuses or crashes; the text is the reason.
        """
        kind = kind_of(self.disk)
        if not kind:
            raise NotMountedError("the disk contains no known file system")
        try:
            with self._running(kind).mounted(read) as files:
                yield files
        except GuestEndedError as error:
            self._stop()
            read.clear()
            raise NotMountedError(f"the kernel crashed: {error}") from error

    def _running(self, kind: str) -> Guest:
        if self._guest is not None and self._guest.file_system != kind:
            self._stop()
        if self._guest is None:
            guest = Guest(Kernel.of(self.kernel), kind, image(self.disk), self.disk.parent)
            self._guest = self._end.enter_context(guest)
        return self._guest

    def _stop(self) -> None:
        self._guest = None
        self._end.close()

"""Messages of the kernel log about a device."""

import contextlib
import os
import re

#: Maximum number of quoted kernel messages, and the maximum log level that counts as a complaint.
_MOST_QUOTED, _WARNING = 3, 4


class KernelLog:
    """The messages of the kernel since this object was created."""

    def __init__(self) -> None:
        """Begin at the end of the kernel log; reads nothing if this process may not read the log."""
        self._lines: int | None = None
        with contextlib.suppress(OSError):
            self._lines = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._lines, 0, os.SEEK_END)

    def about(self, device: str) -> str:
        """Return the last complaints about a device, with `device` instead of its name.

        This closes the log.
        """
        if self._lines is None:
            return ""
        heard = []
        try:
            while True:
                try:
                    heard.append(os.read(self._lines, 8192).decode(errors="replace"))
                except BrokenPipeError:  # Older messages were overwritten.
                    continue
        except OSError:
            pass
        finally:
            os.close(self._lines)
            self._lines = None
        return complaints_about(device, heard)


def complaints_about(device: str, records: list[str]) -> str:
    """Select complaints about a device from records of `/dev/kmsg`.

    >>> complaints_about("loop1", ["4,9,5,-;XFS (loop1): has duplicate UUID", "4,10,6,-;XFS (loop10): other"])
    'XFS (device): has duplicate UUID'
    """
    named = re.compile(rf"\b{re.escape(device)}\b")
    found: list[tuple[int, str]] = []
    for record in records:
        about, _, text = record.partition(";")
        text = text.split("\n")[0].strip()
        urgency = about.split(",")[0]
        if named.search(text) and urgency.isdecimal():
            found.append((int(urgency) & 7, named.sub("device", text)))
    loud = [text for urgency, text in found if urgency <= _WARNING] or [text for _, text in found][-1:]
    return "; ".join(list(dict.fromkeys(loud))[-_MOST_QUOTED:])

"""Configures how this process allocates memory."""

import ctypes

#: Parameters of `mallopt` in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
#: Free memory at the end of the heap above which glibc returns it to the system, bytes: the maximum `int`.
_KEPT_BYTES = 2**31 - 1


def keep_freed_memory() -> None:
    """Keep freed memory in this process for the next use. Does nothing if the C library is not glibc.

    Simulations copy used devices of some hundred megabytes again and again. By default glibc returns each
    copy to the system, which has to clear every page for the next one: half the time of a short simulation.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)

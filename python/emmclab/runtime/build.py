"""The identity of this build; stored results of other builds are not reused."""

import functools
import hashlib
from pathlib import Path

from emmclab import _core


@functools.cache
def build_digest() -> str:
    """SHA-256 of the compiled core, first 16 digits."""
    with Path(_core.__file__).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]

"""The identity of this build; stored results of other builds are not reused."""

import functools
import hashlib
from pathlib import Path

from emmclab import _core


@functools.cache
def build_digest() -> str:
    """Return the first 16 digits of the SHA-256 of the compiled Rust core."""
    with Path(_core.__file__).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]

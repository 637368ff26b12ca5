"""Makes Python load the core that the tests were built with, instead of the installed one.

Python imports this module at its start if this folder is on PYTHONPATH, in the tests' own process and in
those that they start. The tests' core checks for overflow and holds `debug_assert!`, and is built together
with the Rust tests.
"""

import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from os import environ


class TestedCore:
    """Finds `emmclab._core` in the file of the variable EMMCLAB_TESTED_CORE."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return the spec of the core; None for other modules."""
        if name != "emmclab._core":
            return None
        core = environ["EMMCLAB_TESTED_CORE"]
        return spec_from_file_location(name, core, loader=ExtensionFileLoader(name, core))


if "EMMCLAB_TESTED_CORE" in environ:
    sys.meta_path.insert(0, TestedCore)

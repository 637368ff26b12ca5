"""Imports optional libraries, which belong to extras of the package, only when they are needed."""

import sys
from importlib import import_module
from typing import Any

from emmclab.errors import UnsupportedError

#: Extra of pyproject.toml that installs a library, by name of the library.
EXTRAS = {
    "pandas": "dataframes",
    "polars": "dataframes",
    "pyarrow": "dataframes",
    "ray": "cluster",
    "obstore": "bucket",
    "optuna": "search",
}


def library(name: str) -> Any:
    """Import a library of an extra.

    >>> library("pyarrow").__name__
    'pyarrow'
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise missing(name) from error


def missing(name: str) -> UnsupportedError:
    """Return the error for a missing library, with the command that installs it into this environment.

    >>> missing("polars").hint.partition(" -m ")[2]
    "pip install 'emmclab[dataframes]'`"
    """
    return UnsupportedError(
        f"this needs the Python library `{name}`",
        hint=f"run `{sys.executable} -m pip install 'emmclab[{EXTRAS[name]}]'`",
    )

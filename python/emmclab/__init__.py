"""A laboratory for the flash storage of phones and boards.

>>> import emmclab
>>> trace = emmclab.read(emmclab.bundled()[0])
>>> profile = trace.profile()
>>> 0 < profile["requests"] <= trace.ledger["kept"]
True
>>> result = emmclab.Device.preset("nexus5").simulate(trace)
>>> result.response.mean_response_ms > 0
True

`Profile` and `Result` are mappings: `list(profile)` names the fields, which end in their unit. Every error is
an `EmmclabError` with `file`, `line`, `field` and `hint` where they are known.

The rest is in rooms, each with a paragraph that says what it holds: `emmclab.traces` (also synthetic
workloads and published figures), `emmclab.fleet` (many recordings as one table), `emmclab.simulation`
(devices, layers, runs and their results), `emmclab.calibration` (presets of measured devices, and their
validation), `emmclab.comparison` (of results), `emmclab.advice` (design options), `emmclab.real_devices`
(durability test, probe, replay of a trace), `emmclab.live` (served devices), `emmclab.crash` (power cuts),
`emmclab.apps` (applications in closed loop), `emmclab.studies`, `emmclab.pages` (HTML pages and figures) and
`emmclab.papers` (reproduced papers and their claims).
"""

from __future__ import annotations

import functools
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from emmclab._core import __version__ as __version__
from emmclab.runtime import document as _document

if TYPE_CHECKING:
    from emmclab.traces.journal import Journal
    from emmclab.traces.profile import Profile


def _write_profile(profile: Profile, path: str | Path) -> None:
    from emmclab.pages.profiles import write_report

    write_report([profile], path)


def _write_journal(journal: Journal, path: str | Path) -> None:
    from emmclab.pages.journal import render
    from emmclab.runtime.files import write_atomically

    write_atomically(path, render(journal))


# The functions that write these pages are registered, because `traces` cannot import `pages`, which imports `traces`.
_document.register_page("profile", _write_profile)
_document.register_page("journal", _write_journal)


@functools.cache
def _declared() -> dict[str, str]:
    """Return the module of each public name, as the type stub declares it; submodules belong to the package."""
    import ast

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> object:
    """Import a name of the package, or a submodule, on first use."""
    if name == "__all__":
        return sorted(name for name, module in _declared().items() if module != __name__)
    module = None if name.startswith("__") else _declared().get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if module == __name__:
        return import_module(f"{__name__}.{name}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    """Return the names of the package and of its submodules."""
    return sorted({*globals(), *_declared()})

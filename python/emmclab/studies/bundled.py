"""Studies that come with emmclab: those of papers, and further ones.

They are read as data from the files `NAME.study.toml` in the folders of `papers`; no code there is imported.
"""

import functools
from importlib.resources import files
from importlib.resources.abc import Traversable

_ENDING = ".study.toml"


def studies_in(folder: Traversable) -> dict[str, Traversable]:
    """Return the study definitions in a folder by study name; the study named like the folder comes first."""
    studies = {entry.name.removesuffix(_ENDING): entry for entry in folder.iterdir() if entry.name.endswith(_ENDING)}
    return {name: studies[name] for name in sorted(studies, key=lambda name: (name != folder.name, name))}


@functools.cache
def _definitions() -> dict[str, Traversable]:
    """Return all study definitions by name.

    The definitions in the folders of papers come first. The definitions in this package follow.
    """
    papers = files("emmclab").joinpath("papers")
    folders = sorted((entry for entry in papers.iterdir() if entry.is_dir()), key=lambda entry: entry.name)
    definitions: dict[str, Traversable] = {}
    for folder in (*folders, files(__package__)):
        definitions |= studies_in(folder)
    return definitions


def bundled() -> list[str]:
    """Return the names of all studies that come with emmclab.

    >>> {"power-cuts", "iiswc15", "phones"} <= set(bundled())
    True
    """
    return list(_definitions())


def bundled_text(name: str) -> str:
    """Return the TOML definition of a bundled study."""
    return _definitions()[name].read_text("utf-8")

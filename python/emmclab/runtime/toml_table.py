"""Reads a TOML table strictly: types are checked, and unknown keys are rejected."""

from typing import Any, cast

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.runtime.lists import once

#: Hints on how to write a value in TOML, by the type of the value (`_FORMS`) or of the elements of a list (`_LISTS`).
_FORMS = {
    str: 'write text: `{key} = "..."`',
    int: "write a number: `{key} = 1`",
    bool: "write `{key} = true` or `{key} = false`",
    list: 'write a list: `{key} = ["...", "..."]`',
    dict: "write a table: `[{key}]`",
}
_LISTS = {str: 'write a list of text: `{key} = ["...", "..."]`', int: "write a list of numbers: `{key} = [1, 2]`"}


class TomlTable:
    """A TOML table that is being read; keys that are never read are reported as unknown."""

    def __init__(self, table: dict[str, Any], file: str, place: str) -> None:
        self._table, self.file, self.place = table, file, place
        self._read: list[str] = []

    def value(self, key: str, kind: Any, default: Any = None) -> Any:
        """Read a value of the type `kind`; if `default` is None, the key is required."""
        self._read.append(key)
        if key not in self._table:
            if default is None:
                similar = _core.closest(key, list(self._table))
                hint = f"there is `{similar}`; did you mean `{key}`?" if similar else f"add `{key} = ...`"
                raise self.fault(key, "this key is missing", hint)
            return default
        value = self._table[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            raise self.fault(key, f"`{value}` is of the wrong type", _FORMS[kinds[0]].format(key=key))
        return value

    def has(self, key: str) -> bool:
        """Return whether the key exists."""
        return key in self._table

    def names(self) -> list[str]:
        """Return all keys; used for a table in which users choose the keys."""
        return list(self._table)

    def text(self, key: str, default: str | None = None) -> str:
        """Read a string."""
        return cast("str", self.value(key, str, default))

    def alternatives(self, key: str, kind: type, default: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """Read a non-empty list of alternatives of a type, without duplicates."""
        return tuple(once(self.all_values(key, kind, default)))

    def all_values(self, key: str, kind: type, default: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """Read a non-empty list of a type; duplicates are kept."""
        values = self.value(key, (list, tuple), default)
        for value in values:
            if not isinstance(value, kind) or isinstance(value, bool):
                raise self.fault(key, f"`{value}` is of the wrong type", _LISTS[kind].format(key=key))
        if not values and default is None:
            raise self.fault(key, "this list is empty", "add at least one value")
        return tuple(values)

    def table(self, key: str, kind: Any) -> dict[str, Any]:
        """Read a table whose values are of the type `kind`, and are not empty lists; empty if the key is missing."""
        table: dict[str, Any] = self.value(key, dict, {})
        for name, value in table.items():
            if not isinstance(value, kind) or value == []:
                hint = "see docs/guides/studies.md"
                if key in ("set", "axes"):
                    hint = "`[grid.axes]` has a list of values to try for each key, `[grid.set]` one value"
                raise self.fault(f"{key}.{name}", f"`{value}` is of the wrong type", hint)
        return table

    def tables(self, key: str) -> "list[TomlTable]":
        """Read a list of tables; empty if the key is missing."""
        parts = self.value(key, (list, tuple), ())
        for part in parts:
            if not isinstance(part, dict):
                raise self.fault(key, "this is not a table", f"write `[[{key}]]`")
        return [TomlTable(part, self.file, f"{self.place}{key}[{number}].") for number, part in enumerate(parts, 1)]

    def inner(self, key: str) -> "TomlTable":
        """Return a required table inside this one, as a `TomlTable`."""
        return TomlTable(self.value(key, dict), self.file, f"{self.place}{key}.")

    def reject_unknown(self) -> None:
        """Reject keys that were never read."""
        for key in self._table:
            if key not in self._read:
                similar = _core.closest(key, self._read)
                hint = f"did you mean `{similar}`?" if similar else f"the keys are: {', '.join(self._read)}"
                raise self.fault(key, "there is no such key", hint)

    def fault(self, key: str, problem: str, hint: str) -> ConfigError:
        """Return the error for a problem with the value of a key."""
        return ConfigError(f"`{self.place}{key}`: {problem}", field=f"{self.place}{key}", hint=hint).in_file(self.file)

"""Records that the Rust core returns, with access to fields as attributes or by path."""

import copy
import functools
from collections.abc import Iterator, Mapping
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from emmclab import _core


class UnknownFieldError(KeyError, AttributeError):
    """The error for an unknown field; the message suggests a similar one."""

    def __init__(self, field: str, fields: Mapping[str, Any]) -> None:
        """Store the unknown field and the existing fields."""
        super().__init__(field)
        self._fields = fields

    def __str__(self) -> str:
        """Return the message; it is computed only here, because most of these errors are caught and not printed."""
        field, paths = str(self.args[0]), list(_paths(self._fields))
        last = field.rpartition(".")[2]
        same_start = (path for path in paths if path.rpartition(".")[2].startswith(last))
        similar = _core.closest(field, paths) or next(same_start, None)
        hint = f"did you mean `{similar}`?" if similar else f"there are: {', '.join(self._fields)}"
        return f"there is no field `{field}`; {hint}"


def _paths(fields: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the path of each field, such as `response.p99_ms`; a group precedes its fields."""
    for name, value in fields.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{name}.")


class FieldMapping(Mapping[str, Any]):
    """An immutable record, which a command prints with `--json`.

    Read a field as an attribute if you know its name; read it by its path, such as `waits.gc_ms`, if the path is in a
    variable. A group of fields is a record if it is read as an attribute, and a plain dictionary as in JSON if it is
    read by path or in iteration. An optional field that is missing is None or an empty list. If the name of a field is
    a Python keyword or a method, the attribute ends with `_`.

    >>> FieldMapping({"name": "chat", "response": {"p99_ms": 1.5}})["response.p99_ms"]
    1.5
    >>> FieldMapping({"response": {"p99_ms": 1.5}}).p99
    Traceback (most recent call last):
    ...
    emmclab.runtime.field_mapping.UnknownFieldError: there is no field `p99`; did you mean `response.p99_ms`?
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        """Wrap the fields that the Rust core returned."""
        self._fields = fields

    if not TYPE_CHECKING:
        # The method is hidden from mypy, which would otherwise accept every attribute of the class.

        def __getattr__(self, name: str) -> Any:
            """Return the field with the attribute's name; a group of fields becomes an object of its declared class."""
            if name.startswith("_"):
                raise AttributeError(name)
            field = name.removesuffix("_")
            return _as_record(self[field], _declared(type(self)).get(field))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *map(attribute_name, (*_declared(type(self)), *self._fields))})

    def _value(self, path: str) -> Any:
        """Return the plain value of a field by its path."""
        if path in self._fields:
            return self._fields[path]
        value: Any = self._fields
        kind: type[FieldMapping] | None = type(self)
        for name in path.split("."):
            declared = _declared(kind).get(name) if kind else None
            if isinstance(value, Mapping) and name in value:
                value = value[name]
            elif get_origin(declared) is list:
                value = []
            elif declared and (value is None or type(None) in get_args(declared)):
                value = None
            else:
                raise UnknownFieldError(path, self._fields)
            kind = record_class(declared)
        return value

    def __getitem__(self, path: str) -> Any:
        return self._value(path)

    def __contains__(self, path: object) -> bool:
        try:
            self._value(str(path))
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fields})"

    def to_dict(self) -> dict[str, Any]:
        """Return a deep copy of all fields, which the caller may change."""
        return copy.deepcopy(dict(self._fields))


def attribute_name(field: str) -> str:
    """Return the name of the attribute of a field.

    >>> [attribute_name(field) for field in ("p99_ms", "from", "values")]
    ['p99_ms', 'from_', 'values_']
    """
    return f"{field}_" if iskeyword(field) or field in dir(Mapping) else field


@functools.cache
def _declared(kind: type[FieldMapping]) -> dict[str, Any]:
    """Return the declared types of the fields of a record, by the names of the fields."""
    return {name.removesuffix("_"): hint for name, hint in get_type_hints(kind).items()}


def record_class(hint: Any) -> type[FieldMapping] | None:
    """Return the class of the records in a declared type; None if they are plain values.

    >>> record_class(list[FieldMapping] | None) is FieldMapping, record_class(dict[str, int])
    (True, None)
    """
    if isinstance(hint, type) and issubclass(hint, FieldMapping):
        return hint
    return next((kind for inner in get_args(hint) if (kind := record_class(inner))), None)


def _as_record(value: Any, hint: Any) -> Any:
    """Convert a plain value to its declared type: mappings become records, also in a list or a dictionary."""
    kind = record_class(hint)
    if kind is None or value is None:
        return value
    if isinstance(value, list):
        return list(map(kind, value))
    return {name: kind(item) for name, item in value.items()} if get_origin(hint) is dict else kind(value)

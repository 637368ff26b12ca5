"""Comparison of data with the types of their fields."""

import json
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from emmclab.runtime.field_mapping import record_class


def as_typed(value: Any, hint: Any) -> Any:
    """Convert a value to a type, which drops or rejects keys that the type does not have."""
    kind = record_class(hint)
    if kind is None:
        return msgspec.json.decode(msgspec.json.encode(msgspec.convert(value, hint)))
    if value is None:
        assert NoneType in get_args(hint)
        return None
    if isinstance(value, list):
        return [as_typed(item, kind) for item in value]
    if get_origin(hint) is dict:
        return {name: as_typed(item, kind) for name, item in value.items()}
    hints = {name.removesuffix("_"): declared for name, declared in get_type_hints(kind).items()}
    may_lack = {
        name for name, declared in hints.items() if NoneType in get_args(declared) or get_origin(declared) is list
    }
    assert hints.keys() - may_lack <= value.keys() <= hints.keys()
    return {name: as_typed(item, hints[name]) for name, item in value.items()}


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    return json.loads(json.dumps(value, default=dict))


def check_types(value: Any, hint: Any) -> None:
    """Check that a value is not empty, and has the fields of a type and no other."""
    assert value
    assert as_typed(plain(value), hint) == plain(value)

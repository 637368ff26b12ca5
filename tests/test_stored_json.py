"""Stored JSON is accepted only if it is identical, bit by bit, to what was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emmclab.crash.explore import Exploration
from emmclab.crash.shards import _stored_share, as_json
from emmclab.crash.stored_log import Session
from emmclab.errors import ConfigError, InputError
from emmclab.runtime.checksummed import from_checked_json, to_checked_json

VALUE = {"a": [1, 2.5, None], "b": {"c": "text"}, "check": "sqlite"}


def test_no_flipped_bit_of_kept_json_gives_another_value() -> None:
    text = to_checked_json(VALUE)
    assert from_checked_json(text) == VALUE
    for place in range(len(text)):
        for bit in range(8):
            damaged = bytearray(text)
            damaged[place] ^= 1 << bit
            # A line may end with a different white-space character.
            assert from_checked_json(bytes(damaged)) in (None, VALUE)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, json.dumps(VALUE), b"\xff"])
def test_what_has_no_check_was_not_written_so(text: str | bytes) -> None:
    assert from_checked_json(text) is None


def test_a_damaged_share_of_an_exploration_is_explored_again(tmp_path: Path) -> None:
    path = tmp_path / "share.json"
    found = Exploration(states=12, finished=True)
    path.write_bytes(to_checked_json(as_json(found)))
    taken = _stored_share(path)
    assert taken is not None
    assert taken.states == 12
    path.write_bytes(path.read_bytes().replace(b"12", b"13", 1))
    assert _stored_share(path) is None


def test_a_damaged_description_of_a_log_is_named_with_the_command_that_writes_it(tmp_path: Path) -> None:
    folder = tmp_path / "c3f28812"
    folder.mkdir()
    for name, text in (("run.json", b"{"), ("options-123456.json", b"[")):
        (folder / name).write_bytes(text)
    with pytest.raises(InputError, match=r"run\.json: this file is damaged") as caught:
        Session(tmp_path).find_state("c3f2:8812:17:123456")
    assert f"emmclab crash --log {folder / 'run.log'}" in str(caught.value.hint)
    (folder / "run.json").write_bytes(to_checked_json({"log": "none", "base": None, "made": {}}))
    with pytest.raises(ConfigError, match="not explored with the options 123456"):
        Session(tmp_path).find_state("c3f2:8812:17:123456")

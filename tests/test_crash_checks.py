"""Checks of power cuts judge contents, and parts of an exploration join into one."""

from pathlib import Path
from typing import Any

from emmclab.crash.checks import CheckFiles, CheckLog, CheckSqlite
from emmclab.crash.explore import Exploration
from emmclab.crash.promises import CutTally, Finding
from emmclab.crash.workloads import record, sqlite_setting


class Held:
    """Files in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def read(self, path: str) -> bytes | None:
        return self._files.get(path)


def test_files_may_be_what_they_were_or_what_was_begun_and_nothing_else() -> None:
    import hashlib

    def what(data: bytes) -> str:
        return f"{len(data)} {hashlib.sha256(data).hexdigest()}"

    check = CheckFiles()
    makes = [f"makes a {what(b'12345')}"]
    for data in (None, b"", b"12", b"99", b"12345"):
        files = {} if data is None else {"/a": data}
        assert check(Held(files), makes) is None
    safe = [*makes, f"safe a {what(b'12345')}"]
    for data in (None, b"", b"1234", b"12346"):
        assert check(Held({} if data is None else {"/a": data}), safe) is not None
    assert check(Held({"/a": b"12345"}), safe) is None
    grows = [*safe, f"grows a {what(b'1234567')}"]
    assert check(Held({"/a": b"123456"}), grows) is None
    assert check(Held({"/a": b"023456"}), grows) is not None
    turns = [*safe, f"turns a {what(b'xyz')}"]
    assert check(Held({"/a": b"xyz"}), turns) is None and check(Held({"/a": b"xy"}), turns) is not None
    gone = [*safe, "turns a gone"]
    assert check(Held({}), gone) is None
    assert check(Held({"/a": b"12345"}), [*gone, "safe a gone"]) is not None


def test_a_log_has_every_record_that_was_safe_and_may_have_more() -> None:
    check, lines = CheckLog(), ["safe log 1", "safe log 2"]
    assert check.file_names(lines) == ["/log"]
    assert check(Held({"/log": record(1) + record(2) + b"torn"}), lines) is None
    for data in (record(1), record(1) + record(3), record(1) + b"\0" * 256):
        assert check(Held({"/log": data}), lines) is not None


def test_a_database_that_is_damaged_or_lacks_a_row_is_told_from_a_documented_loss(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "d"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, data BLOB)")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(n, bytes(500)) for n in range(1, 30)])
    database.commit()
    database.close()
    whole = path.read_bytes()

    def lost(name: str, safe: int, data: bytes | None, *, garbles: bool = False) -> Any:
        check = CheckSqlite(*(sqlite_setting(name) or (None, None)), garbles=garbles)
        files = {} if data is None else {"/test.db": data}
        return check(Held(files), [f"safe test.db {n}" for n in range(safe + 1)])

    assert lost("sqlite-delete", 29, whole) is None
    one = lost("sqlite-delete", 30, whole)
    assert one.promise == "commit" and one.documented
    assert lost("sqlite-delete", 31, whole).documented is None
    assert lost("sqlite-delete-extra", 30, whole).documented is None
    assert lost("sqlite-wal-normal", 40, whole).documented
    # The journal is truncated without a following sync.
    assert "atomiccommit" in lost("sqlite-truncate-normal", 30, whole).documented
    assert lost("sqlite-truncate-normal", 31, whole).documented is None
    for name in ("sqlite-truncate-full", "sqlite-persist-normal", "sqlite-persist-full", "sqlite-wal-full"):
        assert lost(name, 30, whole).documented is None, name
    assert lost("sqlite-wal", 1, None).promise == "commit"
    assert "psow" in lost("sqlite-wal", 30, whole, garbles=True).documented
    assert lost("sqlite-wal", 31, whole, garbles=True).documented is None
    assert lost("sqlite-truncate", 30, whole, garbles=True).documented is None
    damaged = lost("sqlite-wal-normal", 1, whole[:4096] + b"\xff" * 4096 + whole[8192:])
    assert damaged.promise == "integrity"
    assert lost("sqlite-delete", 1, b"no database at all" * 300).promise == "integrity"


def test_failures_of_a_command_are_of_one_kind_if_their_texts_differ_only_in_numbers() -> None:
    found = Exploration(finished=True)
    damage = "inflate: data stream error"
    texts = ("row 7 is lost", "row 12 is lost", f"fsck: 3fa9c: {damage}", f"fsck: 00aab: {damage}")
    for index, text in enumerate(texts):
        found.add(Finding("check", "application", index, 0, index, text, "random", 0, 0))
    for index, text in enumerate(("f1: gone", "f2: gone")):
        found.add(Finding("fsync", "filesystem", index, 0, index, text, "random", 0, 0))
    kinds = [(one.detail, one.count) for one in found.findings()]
    assert kinds == [("f1: gone", 2), (texts[0], 2), (texts[2], 2)]


def test_what_shares_found_is_one_whatever_their_order() -> None:
    def found(index: int) -> Exploration:
        verdicts = {index // 2: CutTally(at_ns=index // 2, states=2, broken=1)}
        part = Exploration(states=2, finished=True, verdicts=verdicts)
        part.add(Finding("flush", "device", index // 2, index, index, f"state {index}", "random", 0, 0))
        return part

    def merged(order: list[int]) -> Exploration:
        whole = Exploration(finished=True)
        for index in order:
            whole.merge(found(index))
        return whole

    one, other = merged([3, 0, 1, 2]), merged([0, 1, 2, 3])
    assert one == other and one.findings()[0].index == 0 and one.findings()[0].count == 4

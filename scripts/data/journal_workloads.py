"""Applications whose writes have to be durable, run on a mounted file system (see record_journal.py).

Each does the I/O of one kind of application without a pause, so that an application waits only for the
device. Sizes and choices come from a generator with a fixed seed.
"""

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

#: Number of rows or files that a program writes.
_OPERATIONS = 240


def _synced(path: Path, *parts: bytes) -> None:
    """Write a file in parts, and wait until it is durable."""
    with path.open("wb", buffering=0) as file:
        for part in parts:
            file.write(part)
        os.fsync(file.fileno())


def _replaced(path: Path, content: bytes) -> None:
    """Replace a file as applications do: write a new file, make it durable, rename it."""
    aside = path.with_suffix(".tmp")
    _synced(aside, content)
    aside.rename(path)


def _database(path: Path, journal_mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"pragma journal_mode={journal_mode}")
    connection.execute("pragma synchronous=full")
    return connection


def _sqlite_prepare(folder: Path, journal_mode: str) -> None:
    with _database(folder / "app.db", journal_mode) as database:
        database.execute("create table entries(id integer primary key, body text)")
    database.close()


def _sqlite(folder: Path, journal_mode: str, rng: random.Random) -> None:
    """Run transactions of one row of 100 bytes: first inserts, then the same number of updates."""
    database = _database(folder / "app.db", journal_mode)
    for _ in range(_OPERATIONS // 2):
        database.execute("insert into entries(body) values(?)", (rng.randbytes(50).hex(),))
    for _ in range(_OPERATIONS // 2):
        row = rng.randint(1, _OPERATIONS // 2)
        database.execute("update entries set body=? where id=?", (rng.randbytes(50).hex(), row))
    database.close()


def _create_files(folder: Path, rng: random.Random) -> None:
    for number in range(_OPERATIONS):
        _synced(folder / f"file-{number:04}", rng.randbytes(4096))


def _mail_prepare(folder: Path) -> None:
    for name in ("tmp", "new", "seen"):
        (folder / name).mkdir()


def _mail(folder: Path, rng: random.Random) -> None:
    """Deliver mail into folders: create, sync and move files; later read and delete them."""
    waiting: list[str] = []
    for number in range(_OPERATIONS // 2):
        name = f"{number:05}.eml"
        head, body = rng.randbytes(rng.randint(400, 1_500)), rng.randbytes(rng.randint(1_000, 30_000))
        _synced(folder / "tmp" / name, head, body)
        (folder / "tmp" / name).rename(folder / "new" / name)
        descriptor = os.open(folder / "new", os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        waiting.append(name)
        if rng.random() < 0.5:
            read = waiting.pop(rng.randrange(len(waiting)))
            (folder / "new" / read).rename(folder / "seen" / read)
            if rng.random() < 0.5:
                (folder / "seen" / read).unlink()


def _chat_prepare(folder: Path) -> None:
    (folder / "media").mkdir()
    with _database(folder / "messages.db", "wal") as database:
        database.execute("create table messages(id integer primary key, thread int, body text, media text)")
        database.execute("create table threads(id integer primary key, snippet text, unread int)")
        database.execute("create index by_thread on messages(thread, id)")
        database.executemany("insert into threads values(?, '', 0)", [(number,) for number in range(30)])
    database.close()


def _chat(folder: Path, rng: random.Random) -> None:
    """Store messages with a write-ahead log, some with a picture in a file, and replace settings."""
    database = _database(folder / "messages.db", "wal")
    for number in range(_OPERATIONS):
        thread, media = rng.randrange(30), ""
        body = rng.randbytes(rng.randint(10, 150)).hex()
        if rng.random() < 0.12:
            media = f"media/{number}.jpg"
            _synced(folder / media, rng.randbytes(rng.randint(30_000, 250_000)))
        database.execute("begin immediate")
        database.execute("insert into messages(thread, body, media) values(?, ?, ?)", (thread, body, media))
        database.execute("update threads set snippet=?, unread=unread+1 where id=?", (body[:40], thread))
        database.execute("commit")
        if rng.random() < 0.15:
            _replaced(folder / "settings.xml", rng.randbytes(rng.randint(500, 3_000)))
    database.close()


def _install_prepare(folder: Path) -> None:
    with _database(folder / "packages.db", "truncate") as database:
        database.execute("create table packages(name text primary key, version int, path text)")
    database.close()


def _install(folder: Path, rng: random.Random) -> None:
    """Unpack packages into files, sync and rename them, register them in a database and a list."""
    database = _database(folder / "packages.db", "truncate")
    for package in range(6):
        target = folder / f"package-{package}.tmp"
        target.mkdir()
        for number in range(50):
            size = min(int(rng.paretovariate(0.9) * 4_000), 400_000)
            (target / f"part-{number}").write_bytes(rng.randbytes(size))
        subprocess.run(["sync", "--file-system", target], check=True)
        target.rename(folder / f"package-{package}")
        for part in range(4):
            database.execute(
                "insert into packages values(?, ?, ?)", (f"app{package}.{part}", part, f"package-{package}")
            )
        _replaced(folder / "packages.xml", rng.randbytes(20_000 + 1_000 * package))
    database.close()


def _camera_prepare(folder: Path) -> None:
    (folder / "photos").mkdir()
    with _database(folder / "media.db", "wal") as database:
        database.execute("create table photos(id integer primary key, path text, size int)")
    database.close()


def _camera(folder: Path, rng: random.Random) -> None:
    """Write photos of 1 to 3 MB to files, make them durable, and enter each into a database."""
    database = _database(folder / "media.db", "wal")
    for number in range(_OPERATIONS // 8):
        path = folder / "photos" / f"{number:04}.jpg"
        size = rng.randint(1_000_000, 3_000_000)
        _synced(path, rng.randbytes(size))
        database.execute("insert into photos(path, size) values(?, ?)", (str(path.name), size))
    database.close()


def _with(journal_mode: str) -> tuple[Callable[[Path], None], Callable[[Path, random.Random], None]]:
    return (
        lambda folder: _sqlite_prepare(folder, journal_mode),
        lambda folder, rng: _sqlite(folder, journal_mode, rng),
    )


#: By name: the preparation before the recording, and the recorded work.
WORKLOADS: dict[str, tuple[Callable[[Path], None], Callable[[Path, random.Random], None]]] = {
    "sqlite-delete": _with("delete"),
    "sqlite-truncate": _with("truncate"),
    "sqlite-persist": _with("persist"),
    "sqlite-wal": _with("wal"),
    "create-files": (lambda _folder: None, _create_files),
    "mail": (_mail_prepare, _mail),
    "chat": (_chat_prepare, _chat),
    "app-install": (_install_prepare, _install),
    "camera": (_camera_prepare, _camera),
}


def main() -> None:
    """Run `prepare NAME FOLDER`, or `run NAME FOLDER CPU`, which writes its processor time in s to CPU."""
    step, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    prepare, run = WORKLOADS[name]
    if step == "prepare":
        prepare(folder)
        return
    run(folder, random.Random(1))
    children = os.times()
    Path(sys.argv[4]).write_text(
        str(time.process_time() - _STARTED + children.children_user + children.children_system)
    )


if __name__ == "__main__":
    #: Processor time for starting Python and importing.
    _STARTED = time.process_time()
    main()

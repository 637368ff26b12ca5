"""Phone-like workloads, run on a mounted file system to record the bundled traces (see record_bundled.sh).

Each function does the I/O of one kind of application at a phone's pace, for about half a minute.
"""

import os
import random
import sqlite3
import sys
import time
from pathlib import Path


def messages(folder: Path, journal_mode: str, rng: random.Random) -> None:
    """Receive, send and read messages: small SQLite transactions with bursts and pauses."""
    database = sqlite3.connect(folder / "mmssms.db", isolation_level=None)
    database.execute(f"pragma journal_mode={journal_mode}")
    database.execute("pragma synchronous=full")
    database.execute("create table sms(id integer primary key, thread int, at int, body text, read int)")
    database.execute("create table threads(id integer primary key, snippet text, unread int, at int)")
    database.execute("create index by_thread on sms(thread, at)")
    for thread in range(40):
        database.execute("insert into threads values(?, '', 0, 0)", (thread,))
    for number in range(220):
        thread = min(int(rng.expovariate(0.15)), 39)
        body = "".join(rng.choice("abcdefgh ") for _ in range(rng.randint(20, 400)))
        database.execute("begin immediate")
        database.execute("insert into sms values(null, ?, ?, ?, 0)", (thread, number, body))
        database.execute("update threads set snippet=?, unread=unread+1, at=? where id=?", (body[:40], number, thread))
        database.execute("commit")
        if rng.random() < 0.4:
            database.execute("update sms set read=1 where thread=?", (thread,))
            database.execute("update threads set unread=0 where id=?", (thread,))
        time.sleep(rng.expovariate(1 / 0.12))
    database.close()


def install(folder: Path, _mode: str, rng: random.Random) -> None:
    """Install packages: one large download, unpacked into many files, renamed into place and synced."""
    for package in range(4):
        download = folder / f"download-{package}.apk"
        with download.open("wb") as file:
            for _ in range(14):
                file.write(rng.randbytes(1 << 20))
                time.sleep(0.08)
            os.fsync(file.fileno())
        target = folder / f"app-{package}.tmp"
        target.mkdir()
        with download.open("rb") as file:
            for number in range(160):
                part = file.read(min(int(rng.paretovariate(0.9) * 8_000), 600_000))
                (target / f"lib{number}.so").write_bytes(part)
        for path in sorted(target.iterdir()):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        target.rename(folder / f"app-{package}")
        download.unlink()
        os.sync()
        time.sleep(rng.uniform(1, 3))


def media_prepare(folder: Path, rng: random.Random) -> None:
    """Store the film before the recording starts."""
    with (folder / "film.mp4").open("wb") as file:
        for _ in range(96):
            file.write(rng.randbytes(1 << 20))


def media(folder: Path, _mode: str, rng: random.Random) -> None:
    """Play a film: sequential reads at a steady rate, some seeks, and saves of the position."""
    with (folder / "film.mp4").open("rb", buffering=0) as film:
        position = folder / "position.xml"
        for second in range(32):
            if rng.random() < 0.08:
                film.seek(rng.randrange(0, 60) << 20)
            for _ in range(10):
                film.read(256 << 10)
                time.sleep(0.1)
            if second % 5 == 4:
                with position.open("w") as file:
                    file.write(f"<position second='{second}'/>")
                    os.fsync(file.fileno())


def browser_prepare(folder: Path, rng: random.Random) -> None:
    """Fill the cache before the recording starts."""
    for number in range(1500):
        (folder / f"old-{number:04x}").write_bytes(rng.randbytes(min(int(rng.paretovariate(1.1) * 3_000), 300_000)))


def browser(folder: Path, _mode: str, rng: random.Random) -> None:
    """Read news on the web: write, read and evict cache files page by page, and store cookies in SQLite."""
    cookies = sqlite3.connect(folder / "cookies.db", isolation_level=None)
    cookies.execute("pragma journal_mode=truncate")
    cookies.execute("create table cookies(host text primary key, value text)")
    old = sorted(folder.glob("old-*"))
    for page in range(14):
        for number in range(rng.randint(15, 60)):
            if rng.random() < 0.45 and old:
                old[rng.randrange(len(old))].read_bytes()
            else:
                size = min(int(rng.paretovariate(1.1) * 3_000), 300_000)
                (folder / f"new-{page}-{number}").write_bytes(rng.randbytes(size))
        for _ in range(rng.randint(1, 4)):
            cookies.execute("insert or replace into cookies values(?, ?)", (f"host{rng.randrange(30)}", rng.random()))
        for _ in range(10):
            old.pop(rng.randrange(len(old))).unlink()
        time.sleep(rng.uniform(1, 3))
    cookies.close()


WORKLOADS = {
    "messages-rollback": (None, messages, "delete"),
    "messages-wal": (None, messages, "wal"),
    "package-install": (None, install, ""),
    "media-stream": (media_prepare, media, ""),
    "browser-cache": (browser_prepare, browser, ""),
}


def main() -> None:
    """Run `prepare NAME FOLDER` or `run NAME FOLDER`."""
    step, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    # The name of this process in the kernel and in the trace, at most 15 characters.
    Path("/proc/self/comm").write_text(name.split("-")[0])
    prepare, run, mode = WORKLOADS[name]
    if step == "prepare":
        if prepare:
            prepare(folder, random.Random(1))
    else:
        run(folder, mode, random.Random(2))


if __name__ == "__main__":
    main()

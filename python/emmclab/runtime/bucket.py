"""Stores results in a bucket of an object store: S3, Google Cloud Storage or Azure, by the address."""

import contextlib
import errno
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

from emmclab.errors import ConfigError, InputError
from emmclab.runtime.files import folder_aside
from emmclab.runtime.local_copies import scratch
from emmclab.runtime.optional_libraries import library
from emmclab.runtime.result_storage import DAMAGED, refused

#: Interval of the heartbeats of a run, and time without one after which it counts as killed, in seconds.
SIGN_S, LEASE_S = 5.0, 20.0
#: Attempts of a request, and the time limit for all of them, after which the bucket counts as unreachable.
_RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=20)}
#: Size of the pieces in which objects are copied, bytes.
_PIECE_BYTES = 8 << 20
#: Prefix of the objects with the heartbeats of runs.
_LOCKS = "running"


class PutObject(TypedDict):
    """Version of an object, as the store reports it; a tag that the store does not have is None."""

    e_tag: str | None
    version: str | None


class ListedObject(PutObject):
    """An existing object, as listings report it."""

    path: str
    size: int
    last_modified: datetime


class Bucket:
    """A part of a bucket: `s3://BUCKET/PREFIX`; keys and endpoint come from the environment."""

    folder = None

    def __init__(self, address: str, field: str = "--results") -> None:
        """Parse the address, which the option `field` contained; no request is sent yet."""
        self._library = library("obstore")
        self._address = address
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
        options = {"client_options": {"allow_http": True}} if endpoint.startswith("http://") else {}
        try:
            self._store = self._library.store.from_url(address, retry_config=_RETRIES, **options)
        except Exception as error:
            raise ConfigError(f"{address}: {_words(error)}", field=field, hint=_hint(address)) from error

    def __str__(self) -> str:
        return self._address

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """Convert errors of the bucket to errors of emmclab."""
        try:
            yield
        except (self._library.exceptions.BaseError, OSError) as error:
            gone = isinstance(error, (FileNotFoundError, self._library.exceptions.NotFoundError))
            denied = isinstance(error, self._library.exceptions.PermissionDeniedError)
            file = f"{self._address}/{name}".rstrip("/")
            raise InputError(
                f"{file}: {'file not found' if gone else _words(error)}",
                file=file,
                errno=errno.ENOENT if gone else errno.EACCES if denied else errno.EIO,
                hint="check the address, the credentials and the network; the same command runs the rest",
            ) from error

    def names(self, below: str) -> list[str]:
        """Return the names of the objects below a prefix."""
        return sorted(one["path"] for one in self.list_objects(below))

    def list_objects(self, below: str = "") -> list[ListedObject]:
        """Return the metadata of the objects below a prefix."""
        with self._asking(below):
            chunks = self._library.list(self._store, prefix=below or None)
            return [one for chunk in chunks for one in chunk]

    def head(self, name: str) -> ListedObject | None:
        """Return the metadata of an object; None if it does not exist."""
        with self._asking(name):
            try:
                found: ListedObject = self._library.head(self._store, name)
            except FileNotFoundError:
                return None
            return found

    def read(self, name: str) -> bytes:
        """Return the content of an object."""
        with self._asking(name):
            return bytes(self._library.get(self._store, name).bytes())

    def write(self, name: str, content: bytes | Path, *, is_derived: bool = False) -> None:
        """Write an object atomically."""
        del is_derived
        with self._asking(name):
            self._library.put(self._store, name, content)

    def replace(self, name: str, content: bytes | Path, former: PutObject | None) -> PutObject | None:
        """Replace the `former` version of an object, or create it; return None if another version exists.

        The result contains the `e_tag` and `version` of the new object, as `head` returns them.
        """
        mode: str | dict[str, str] = "create"
        if former is not None:
            known = {"e_tag": former["e_tag"], "version": former["version"]}
            mode = {key: value for key, value in known.items() if value is not None}
        others = self._library.exceptions
        with self._asking(name):
            try:
                put: PutObject = self._library.put(self._store, name, content, mode=mode, use_multipart=False)
            except (others.AlreadyExistsError, others.PreconditionError, FileNotFoundError):
                return None
            return put

    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""
        with self._asking(name), contextlib.suppress(FileNotFoundError):
            self._library.delete(self._store, name)

    def set_aside(self, name: str) -> str:
        """Rename an object."""
        with self._asking(name):
            self._library.rename(self._store, name, name + DAMAGED)
        return name + DAMAGED

    @contextlib.contextmanager
    def aside(self) -> Iterator[Path]:
        """Provide a local temporary folder."""
        with folder_aside(scratch()) as aside:
            yield aside

    reading = aside

    def paths(self, names: Sequence[str], aside: Path) -> list[Path]:
        """Copy objects to this machine."""
        found = []
        for number, name in enumerate(names):
            found.append(aside / f"copy-{number}{Path(name).suffix}")
            self.copy(name, found[-1])
        return found

    def copy(self, name: str, path: Path) -> None:
        """Copy an object to this machine, in pieces."""
        with self._asking(name), path.open("wb") as file:
            for chunk in self._library.get(self._store, name).stream(min_chunk_size=_PIECE_BYTES):
                file.write(chunk)

    @contextlib.contextmanager
    def lock(self, shard: str) -> Iterator[None]:
        """Hold a lock: write heartbeats to an object, which no other run may replace while they continue.

        An object store has no locks that end with their process. So a run that finds the object of another
        run waits for its next heartbeat; if none arrives, the other run was killed.
        """
        mine = f"{_LOCKS}/{shard or 'all'}"
        self._wait_for_others(shard, mine)
        sign = self.replace(mine, _sign(), None)
        if sign is None:
            raise refused(self, "")
        alive = _Signs(self, mine, sign)
        alive.start()
        try:
            yield
        finally:
            alive.stop()
        if alive.lost:
            raise refused(self, " because this one missed its heartbeats")
        self.remove(mine)

    def _wait_for_others(self, shard: str, mine: str) -> None:
        """Wait for the next heartbeats of runs of the same cells; remove the objects of killed runs."""
        first = self._signs(shard, mine)
        until = time.monotonic() + LEASE_S
        while first and time.monotonic() < until:
            time.sleep(SIGN_S / 5)
            now = self._signs(shard, mine)
            for name in list(first):
                if name not in now:
                    del first[name]
                elif now[name] != first[name]:
                    raise refused(self, f" ({self._by(name)})")
        for name in first:
            self.remove(name)

    def _signs(self, shard: str, mine: str) -> dict[str, tuple[str | None, datetime]]:
        """Return the latest heartbeat of each conflicting run: of the same shard, and of all cells."""
        return {
            one["path"]: (one["e_tag"], one["last_modified"])
            for one in self.list_objects(_LOCKS)
            if not shard or one["path"] in (mine, f"{_LOCKS}/all")
        }

    def _by(self, name: str) -> str:
        try:
            said = json.loads(self.read(name))
            return f"process {said['process']} on {said['host']}"
        except (InputError, ValueError, KeyError, TypeError):
            return name

    def renew(self, at: str, sign: Any) -> Any:
        """Write the next heartbeat; return None if another run has replaced the last one."""
        try:
            return self.replace(at, _sign(), sign)
        except InputError:
            # The bucket is unreachable for now; the next heartbeat shows whether the lock is still ours.
            return sign


class _Signs:
    """A thread that writes heartbeats."""

    def __init__(self, bucket: Bucket, name: str, sign: Any) -> None:
        self._bucket, self._name, self._sign = bucket, name, sign
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.lost = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self.lost and not self._over.wait(SIGN_S):
            self._sign = self._bucket.renew(self._name, self._sign)
            self.lost = self._sign is None


def _sign() -> bytes:
    """Return a heartbeat that differs from all earlier ones."""
    said = {"host": socket.gethostname(), "process": os.getpid(), "sign": secrets.token_hex(8)}
    return json.dumps(said).encode()


def _hint(address: str) -> str:
    """Return a hint for a bucket that cannot be opened: its credentials, or the form of the address."""
    if address.startswith(("az://", "azure://", "abfs")):
        return "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
    if address.startswith("gs://"):
        return "set GOOGLE_APPLICATION_CREDENTIALS to the key file of a service account"
    return "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"


def _words(error: Exception) -> str:
    """Return the first line of an error, without the debug output after it."""
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__

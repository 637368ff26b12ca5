"""Stores results in a bucket of an object store: S3, Google Cloud Storage or Azure."""

import contextlib
import errno
import json
import os
import secrets
import socket
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
from emmclab.runtime.threads import repeated

#: Interval of the heartbeats of a run, and time without a heartbeat after which the run counts as killed, in seconds.
HEARTBEAT_S, LEASE_S = 5.0, 20.0
#: Retries of a failed request, and the time limit for all of them; after that, the bucket counts as unreachable.
_RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=20)}
#: Objects are copied in pieces of this size, bytes.
_PIECE_BYTES = 8 << 20
#: Name prefix of the objects in the bucket that contain the heartbeats of runs.
_LOCKS = "running"


class PutObject(TypedDict):
    """Version of a stored object. Fields that the store does not report are None."""

    e_tag: str | None
    version: str | None


class ListedObject(PutObject):
    """Metadata of an existing object."""

    path: str
    size: int
    last_modified: datetime


class Bucket:
    """The objects below `s3://BUCKET/PREFIX`; credentials and endpoint are environment variables."""

    folder = None

    def __init__(self, address: str, field: str = "--results") -> None:
        """Parse the address, which is the value of the option `field`; no request is sent yet."""
        self._library = library("obstore")
        self._address = address
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
        options = {"client_options": {"allow_http": True}} if endpoint.startswith("http://") else {}
        try:
            self._store = self._library.store.from_url(address, retry_config=_RETRIES, **options)
        except Exception as error:
            raise ConfigError(f"{address}: {_first_line(error)}", field=field, hint=_hint(address)) from error

    def __str__(self) -> str:
        return self._address

    @contextlib.contextmanager
    def _converted_errors(self, name: str) -> Iterator[None]:
        """Convert errors of the object store to errors of emmclab."""
        try:
            yield
        except (self._library.exceptions.BaseError, OSError) as error:
            is_missing = isinstance(error, (FileNotFoundError, self._library.exceptions.NotFoundError))
            is_denied = isinstance(error, self._library.exceptions.PermissionDeniedError)
            file = f"{self._address}/{name}".rstrip("/")
            raise InputError(
                f"{'file not found' if is_missing else _first_line(error)}",
                errno=errno.ENOENT if is_missing else errno.EACCES if is_denied else errno.EIO,
                hint="check the address, the credentials and the network; the same command then continues the run",
            ).in_file(file) from error

    def names(self, below: str) -> list[str]:
        """Return the names of the objects below a prefix."""
        return sorted(entry["path"] for entry in self.list_objects(below))

    def list_objects(self, below: str = "") -> list[ListedObject]:
        """Return the metadata of the objects below a prefix."""
        with self._converted_errors(below):
            chunks = self._library.list(self._store, prefix=below or None)
            return [entry for chunk in chunks for entry in chunk]

    def head(self, name: str) -> ListedObject | None:
        """Return the metadata of an object; None if it does not exist."""
        with self._converted_errors(name):
            try:
                metadata: ListedObject = self._library.head(self._store, name)
            except FileNotFoundError:
                return None
            return metadata

    def read(self, name: str) -> bytes:
        """Return the content of an object."""
        with self._converted_errors(name):
            return bytes(self._library.get(self._store, name).bytes())

    def write(self, name: str, content: bytes | Path, *, is_derived: bool = False) -> None:
        """Write an object atomically."""
        del is_derived
        with self._converted_errors(name):
            self._library.put(self._store, name, content)

    def replace(self, name: str, content: bytes | Path, former: PutObject | None) -> PutObject | None:
        """Replace the `former` version of an object, or create it; return None if another version exists.

        The result contains the `e_tag` and `version` of the new object, as `head` returns them.
        """
        mode: str | dict[str, str] = "create"
        if former is not None:
            tags = {"e_tag": former["e_tag"], "version": former["version"]}
            mode = {key: value for key, value in tags.items() if value is not None}
        exceptions = self._library.exceptions
        with self._converted_errors(name):
            try:
                version: PutObject = self._library.put(self._store, name, content, mode=mode, use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError):
                return None
            return version

    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""
        with self._converted_errors(name), contextlib.suppress(FileNotFoundError):
            self._library.delete(self._store, name)

    def set_aside(self, name: str) -> str:
        """Rename a damaged object; return its new name."""
        with self._converted_errors(name):
            self._library.rename(self._store, name, name + DAMAGED)
        return name + DAMAGED

    def aside(self) -> contextlib.AbstractContextManager[Path]:
        """Return a local temporary folder."""
        return folder_aside(scratch())

    reading = aside

    def paths(self, names: Sequence[str], aside: Path) -> list[Path]:
        """Copy objects to the local folder `aside`; return the paths of the copies."""
        copies = []
        for number, name in enumerate(names):
            copies.append(aside / f"copy-{number}{Path(name).suffix}")
            self.copy(name, copies[-1])
        return copies

    def copy(self, name: str, path: Path) -> None:
        """Copy an object to this machine, in pieces."""
        with self._converted_errors(name), path.open("wb") as file:
            for chunk in self._library.get(self._store, name).stream(min_chunk_size=_PIECE_BYTES):
                file.write(chunk)

    @contextlib.contextmanager
    def lock(self, shard: str) -> Iterator[None]:
        """Hold a lock by writing heartbeats to an object, which no other run may replace while they continue.

        In an object store, a lock does not end with its process. If the lock object of another run exists, this run
        therefore waits for that run's next heartbeat; if none arrives, the other run was killed.
        """
        own = f"{_LOCKS}/{shard or 'all'}"
        self._wait_for_others(shard, own)
        heartbeat = self.replace(own, _heartbeat(), None)
        if heartbeat is None:
            raise refused(self, "")

        def renew() -> None:
            nonlocal heartbeat
            heartbeat = heartbeat and self.renew(own, heartbeat)

        with repeated(HEARTBEAT_S, renew):
            yield
        if heartbeat is None:
            raise refused(self, " because this one missed its heartbeats")
        self.remove(own)

    def _wait_for_others(self, shard: str, own: str) -> None:
        """Raise an error if a conflicting run of the study sends heartbeats; remove lock objects of killed runs."""
        first = self._heartbeats(shard, own)
        deadline = time.monotonic() + LEASE_S
        while first and time.monotonic() < deadline:
            time.sleep(HEARTBEAT_S / 5)
            latest = self._heartbeats(shard, own)
            for name in list(first):
                if name not in latest:
                    del first[name]
                elif latest[name] != first[name]:
                    raise refused(self, f" ({self._process_text(name)})")
        for name in first:
            self.remove(name)

    def _heartbeats(self, shard: str, own: str) -> dict[str, tuple[str | None, datetime]]:
        """Return the latest heartbeat of each conflicting run, that is, of the same shard or of all cells."""
        return {
            entry["path"]: (entry["e_tag"], entry["last_modified"])
            for entry in self.list_objects(_LOCKS)
            if not shard or entry["path"] in (own, f"{_LOCKS}/all")
        }

    def _process_text(self, name: str) -> str:
        try:
            content = json.loads(self.read(name))
            return f"process {content['process']} on {content['host']}"
        except (InputError, ValueError, KeyError, TypeError):
            return name

    def renew(self, name: str, last: Any) -> Any:
        """Write the next heartbeat; return None if another run has replaced the lock object."""
        try:
            return self.replace(name, _heartbeat(), last)
        except InputError:
            # The bucket cannot be reached for now; the next heartbeat shows whether this run still owns the lock.
            return last


def _heartbeat() -> bytes:
    """Return a heartbeat that differs from all earlier ones."""
    content = {"host": socket.gethostname(), "process": os.getpid(), "sign": secrets.token_hex(8)}
    return json.dumps(content).encode()


def _hint(address: str) -> str:
    """Return a hint for a bucket that cannot be opened: which credentials it needs, or the form of an address."""
    if address.startswith(("az://", "azure://", "abfs")):
        return "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
    if address.startswith("gs://"):
        return "set GOOGLE_APPLICATION_CREDENTIALS to the key file of a service account"
    return "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"


def _first_line(error: Exception) -> str:
    """Return the first line of an error, without the debug output after it."""
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__

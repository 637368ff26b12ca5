"""The control socket of a served device answers any input, also after its process was killed."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emmclab.errors import ConfigError, EmmclabError, InputError
from emmclab.live import control
from emmclab.live.control import Control, ask


class Live:
    """A stand-in for a served device with what the socket needs."""

    def stats(self) -> dict[str, Any]:
        return {"powered": True}

    def cut(self) -> None:
        raise RuntimeError("the core is out of its mind")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    # The path of a socket has to be short.
    return Path(os.path.relpath(tmp_path / "s"))


@pytest.fixture
def served(path: Path) -> Iterator[Path]:
    with Control(Live(), path, lambda: None):
        yield path


def send(path: Path, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(60)
        client.connect(str(path))
        client.sendall(line)
        answer: dict[str, Any] = json.loads(client.makefile("rb").readline())
        return answer


@pytest.mark.parametrize(
    "line",
    [b"[" * 4000 + b"\n", b'{"a":' * 800 + b"\n", b"\xff\xfe\n", b"\0\n", b"[]\n", b"null\n", b'{"command": 3}\n'],
)
def test_whatever_line_comes_the_next_client_is_answered(served: Path, line: bytes) -> None:
    assert send(served, line + b"\n")["ok"] is False
    assert ask(served, "status")["status"] == {"powered": True}


def test_a_fault_in_one_command_is_told_and_the_next_is_answered(served: Path) -> None:
    with pytest.raises(ConfigError, match="out of its mind"):
        ask(served, "cut")
    assert ask(served, "status")["ok"] is True


def test_a_client_does_not_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_ANSWER_S", 0.2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
        mute.bind(str(path))
        mute.listen()
        with pytest.raises(InputError, match=r"no answer arrived within") as caught:
            ask(path, "status")
        assert "emmclab serve --control" in str(caught.value.hint)


@pytest.mark.parametrize("answer", [b"hello\n", b"[]\n", b"[" * 100_000 + b"\n", b"{}\n"])
def test_an_answer_of_another_program_is_refused(path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()

        def tell() -> None:
            client, _ = other.accept()
            with client:
                client.recv(4096)
                client.sendall(answer)

        thread = threading.Thread(target=tell)
        thread.start()
        with pytest.raises(EmmclabError, match="nothing answers there"):
            ask(path, "status")
        thread.join()


def test_a_socket_whose_process_was_killed_is_made_anew(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(path))
        killed.listen()
    assert path.is_socket()
    with Control(Live(), path, lambda: None):
        assert ask(path, "status")["ok"] is True
    assert not path.exists()


def test_a_socket_at_which_another_process_listens_stays_its_own(served: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be made") as caught:
        Control(Live(), served, lambda: None)
    assert "name another" in str(caught.value.hint)
    assert ask(served, "status")["ok"] is True


def test_what_is_no_socket_is_not_removed_for_one(path: Path) -> None:
    path.write_text("kept")
    with pytest.raises(ConfigError, match="cannot be made"):
        Control(Live(), path, lambda: None)
    assert path.read_text() == "kept"


def test_silent_clients_do_not_keep_others_waiting(served: Path) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(130):
            silent = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            silent.connect(str(served))
        begun = time.monotonic()
        assert ask(served, "status")["ok"]
        assert time.monotonic() - begun < 4, "less than the time that one silent client is given"

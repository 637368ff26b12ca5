"""Stored findings are used again only if everything that a verdict depends on is unchanged."""

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import assert_refused, emmclab, make_btrfs, need
from crash_runs import dm_log
from emmclab.crash.explore import Options, require_recoverable
from emmclab.crash.kernel_log import complaints_about
from emmclab.crash.mounting import NotMountedError, mounted
from emmclab.crash.recording import Workload
from emmclab.crash.stored_log import Session, open_log
from emmclab.crash.verdict_inputs import contents_of, digest, grounds
from emmclab.crash.workloads import Thinking, record
from emmclab.errors import ConfigError, EmmclabError


def known(check: str | None, recovery: str = "mount", identity: str = "log") -> str:
    return digest(grounds(check, recovery, identity=identity))


def test_a_hole_is_the_same_as_zeros_and_any_other_byte_is_not(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        with path.open("wb") as file:
            file.truncate(5 << 20)
            file.seek(3 << 20)
            file.write(b"data")
    other.write_bytes(one.read_bytes())
    assert contents_of(one) == contents_of(other)
    other.write_bytes(one.read_bytes()[:-1] + b"x")
    assert contents_of(one) != contents_of(other)
    other.write_bytes(one.read_bytes()[:-1])
    assert contents_of(one) != contents_of(other)


def test_the_grounds_are_log_and_base_check_recovery_and_tools() -> None:
    first = known("./check.sh")
    assert known("./check.sh") == first
    assert known("./check.sh", identity="other") != first
    assert known("./check.sh -v") != first
    assert known("./check.sh", "e2fsck") != first
    assert known("files", "process") != known("files", "e2fsck") != known("files", "mount")


def test_of_the_kernel_what_complains_about_the_device_is_quoted() -> None:
    records = [
        "6,1,1,-;XFS (loop1): Mounting V5 Filesystem\n SUBSYSTEM=block",
        "4,2,2,-;XFS (loop10): Filesystem has duplicate UUID",
        "3,3,3,-;EXT4-fs error (device loop1): ext4_fill_super: bad block",
        "4,4,4,-;JBD2: other",
    ]
    assert complaints_about("loop1", records) == "EXT4-fs error (device device): ext4_fill_super: bad block"
    assert complaints_about("loop2", records) == ""


def image_of(folder: Path, make: Callable[[Path], object]) -> Path:
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(320 << 20)
    make(image)
    return image


def make_ext4(image: Path) -> None:
    need("mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True)


def make_xfs(image: Path) -> None:
    need("mkfs.xfs")
    subprocess.run(["mkfs.xfs", "-q", str(image)], check=True, capture_output=True)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("make", [make_xfs, make_btrfs, make_ext4])
def test_states_of_one_disk_are_mounted_side_by_side(tmp_path: Path, make: Callable[[Path], object]) -> None:
    image = image_of(tmp_path, make)
    failed: list[BaseException] = []

    def judge(number: int) -> None:
        copy, folder = tmp_path / f"{number}.img", tmp_path / f"mount{number}"
        folder.mkdir()
        try:
            subprocess.run(["cp", "--sparse=always", str(image), str(copy)], check=True)
            for _ in range(3):
                with mounted(copy, folder, 120):
                    (folder / "name").write_text(str(number))
                with mounted(copy, folder, 120):
                    assert (folder / "name").read_text() == str(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


@pytest.mark.usefixtures("root")
def test_a_mount_that_fails_gives_the_reason_of_the_kernel(tmp_path: Path) -> None:
    image = image_of(tmp_path, make_ext4)
    with image.open("r+b") as file:
        file.seek(1024 + 0x3FC)
        file.write(b"\0\1\2\3")
    folder = tmp_path / "mount"
    folder.mkdir()
    with pytest.raises(NotMountedError) as refused, mounted(image, folder, 120):
        pass
    said = str(refused.value)
    assert "dmesg" not in said and "/dev/loop" not in said and str(tmp_path) not in said
    if os.access("/dev/kmsg", os.R_OK):
        assert "EXT4-fs" in said and "checksum" in said.lower(), said


def test_a_workload_with_think_times_pauses_and_goes_on(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "0.5"], start_new_session=True)
    with Thinking(process.pid, tmp_path, seed=3) as thinking:
        assert process.wait(timeout=60) == 0
    assert thinking.pauses > 0
    assert Workload("files").thinks == 0
    with Thinking(process.pid, tmp_path, seed=0) as never:
        pass
    assert never.pauses == 0


def ext4_with(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    held, image = folder / f"{name}.files", folder / f"{name}.img"
    held.mkdir()
    for path, data in files.items():
        (held / path).write_bytes(data)
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-d", str(held), str(image)], check=True, capture_output=True)
    return image


def test_one_log_on_another_base_image_has_a_verdict_of_its_own(tmp_path: Path) -> None:
    need("mkfs.ext4")
    log = tmp_path / "marks.log"
    dm_log(log, "safe log 1")
    whole = ext4_with(tmp_path, "whole", {"log": record(1)})
    damaged = ext4_with(tmp_path, "damaged", {"log": record(2)})
    session, options = Session(tmp_path / "results"), Options(states="boundary", check="append-log")
    kept = session.take(log, whole)
    first = kept.explore(options, 1, lambda _found: None)
    assert first.states > 0 and first.findings() == [] and first.reused == 0
    other = session.take(log, damaged)
    found = other.explore(options, 1, lambda _found: None)
    assert other.short != kept.short and found.reused == 0
    assert [one.promise for one in found.findings()] == ["fdatasync"]
    # A state is reproduced on the image on which it was found.
    one = found.findings()[0]
    again, _ = session.find_state(other.name_of(options, one.cut, one.state))
    assert again.base == str(damaged)
    # With the same grounds, findings are used again, unless that is switched off.
    assert session.take(log, whole).explore(options, 1, lambda _found: None).reused == first.states
    assert kept.explore(options, 1, lambda _found: None, reuse=False).reused == 0
    # Other content under the same name is another base image.
    whole.write_bytes(damaged.read_bytes())
    assert session.take(log, whole).explore(options, 1, lambda _found: None).findings()
    with pytest.raises(EmmclabError, match=r"its base image .*whole.img, is not the one"):
        session.find_state(kept.name_of(options, 0, 0))


def test_a_disk_without_ext4_is_refused_unless_the_kernel_recovers_it(tmp_path: Path) -> None:
    log, base = tmp_path / "marks.log", tmp_path / "disk.img"
    dm_log(log, "a line")
    with base.open("wb") as file:
        file.write(b"XFSB")
        file.truncate(16 << 20)
    run, _ = open_log(log, str(base))
    for recovery in ("process", "e2fsck"):
        with pytest.raises(ConfigError, match="supports only ext4") as refused:
            require_recoverable(run, Options(recovery=recovery))
        assert refused.value.hint is not None and "--recovery mount" in refused.value.hint
    require_recoverable(run, Options(recovery="mount"))


def test_an_ext4_whose_journal_has_no_magic_number_is_an_ext4(tmp_path: Path) -> None:
    need("mkfs.ext4")
    log = tmp_path / "marks.log"
    dm_log(log, "a line")
    base = ext4_with(tmp_path, "disk", {"file": b"data"})
    image = bytearray(base.read_bytes())
    # The magic number of a journal block and the type of a superblock of version 2 (JBD2).
    image[image.index(bytes.fromhex("c03b399800000004"))] ^= 0xFF
    base.write_bytes(image)
    run, _ = open_log(log, str(base))
    for recovery in ("process", "e2fsck"):
        require_recoverable(run, Options(recovery=recovery))


def test_what_changes_while_states_are_judged_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("mkfs.ext4")
    dm_log(tmp_path / "marks.log", "safe log 1")
    kept = Session(tmp_path / "results").take(tmp_path / "marks.log", ext4_with(tmp_path, "disk", {"log": record(1)}))
    versions = iter("12")
    monkeypatch.setattr("emmclab.crash.verdict_inputs.build", lambda: next(versions))
    with pytest.raises(EmmclabError, match="build changed while states were judged"):
        kept.explore(Options(states="boundary", check="append-log"), 1, lambda _found: None)


@pytest.mark.usefixtures("root")
def test_recordings_are_explored_together_and_each_pauses_on_its_own(tmp_path: Path) -> None:
    """A file that is truncated and rewritten is lost if the kernel writes back in between."""
    script = tmp_path / "in-place.sh"
    script.write_text('for n in 1 2 3; do : > a; sleep 0.05; echo "$n" > b; mv b a; sync a .; echo "safe $n"; done\n')
    words = ("--device", "emmc51-cache", "--cuts", "3", "--states", "device", "--jobs", "1", "--repeat", "2")
    done = emmclab("crash", *words, "--json", "--", "sh", str(script), cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    result = json.loads(done.stdout)
    first, second = result["recordings"]
    assert first["run"]["pauses"] == 0 < second["run"]["pauses"]
    assert first["log"]["identity"] != second["log"]["identity"]
    assert result["states"] == first["states"] + second["states"]
    assert_refused(emmclab("crash", "--log", first["log"]["path"], "--repeat", "2", cwd=tmp_path), "cannot be repeated")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("words", "said", "cure"), [(("--fs", "xfs", "--workload", "files"), "supports only ext4", "--recovery mount")]
)
def test_a_recovery_that_cannot_be_is_refused_before_the_workload_runs(
    tmp_path: Path, words: tuple[str, ...], said: str, cure: str
) -> None:
    done = emmclab("crash", "--device", "emmc51-cache", *words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and cure in done.stderr.partition("hint:")[2]
    assert "running" not in done.stderr


@pytest.mark.usefixtures("root")
def test_fast_commits_are_replayed_in_process_as_by_the_kernel(tmp_path: Path) -> None:
    words = ("--device", "emmc51-cache", "--workload", "files", "--operations", "5", "--cuts", "4")
    fast = ("--mkfs-option=-O", "--mkfs-option=fast_commit", "--states", "device", "--jobs", "1")
    done = emmclab("crash", *words, *fast, "--json", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    log = json.loads(done.stdout)["log"]["path"]
    mounted = emmclab(
        "crash", "--log", log, "--recovery", "mount", *words[-2:], *fast[2:], "--workload", "files", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert mounted.returncode == done.returncode, mounted.stderr
    one, other = json.loads(done.stdout), json.loads(mounted.stdout)
    assert (one["states"], len(one["findings"])) == (other["states"], len(other["findings"]))

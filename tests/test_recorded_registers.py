"""Device registers in a recording: what reads them, and the messages about damaged ones."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import emmclab as api
from conftest import COMMAND, emmclab, emmclab_json, environment, need
from emmclab import _core
from registers import UFS, register

CID = "45010044463430333201123456788333"
CARD = {
    "cid": CID,
    "manfid": "0x000045",
    "oemid": "0x0100",
    "name": "DF4032",
    "date": "08/2016",
    "rev": "0x8",
    "life_time": "0x02 0x03",
    "size": "15269888",
}


def recorded(path: Path, *devices: dict[str, Any]) -> Path:
    """Return a trace whose header has the registers of these devices."""
    trace = api.read(api.bundled()[0])
    batches = list(trace.batches())
    header = {**trace.header, "registers": json.dumps(devices)}
    writer = _core.Writer(path, header)
    for batch in batches:
        writer.write(batch)
    writer.finish(trace.ledger, header)
    return path


def card(gaps: list[str] | None = None, **changes: str | None) -> dict[str, Any]:
    """Return an eMMC with its register; `changes` by the name of the file, None removes the file."""
    files = {**CARD, "ext_csd": register().hex(), **changes}
    kept = {name: text for name, text in files.items() if text is not None}
    folder = "/sys/devices/platform/soc/mmc_host/mmc0/mmc0:0001"
    return {"disks": ["mmcblk0"], "kind": "emmc", "folder": folder, "files": kept, "gaps": gaps or []}


def ufs() -> dict[str, Any]:
    folder = "/sys/devices/platform/soc/1d84000.ufshc"
    return {"disks": ["sda"], "kind": "ufs", "folder": folder, "files": dict(UFS), "gaps": []}


def test_a_preset_is_made_of_a_recording_as_of_its_registers(tmp_path: Path) -> None:
    path, dump = recorded(tmp_path / "phone.parquet", card()), tmp_path / "ext_csd"
    dump.write_text(register().hex())
    made = emmclab_json("preset", "--from", path, "--name", "same")
    assert f"write `emmclab preset --from {path}`" in emmclab("preset", path).stderr
    direct = emmclab_json("preset", "--ext-csd", dump, "--name", "same")
    assert (made["like"], made["settings"]) == (direct["like"], direct["settings"])
    assert made["capacity_bytes"] == direct["capacity_bytes"]
    assert emmclab_json("preset", "--ext-csd", path, "--name", "same")["digest"] == made["digest"]
    assert emmclab_json("preset", "--from", recorded(tmp_path / "u.parquet", ufs()))["like"] == "ufs31"
    wrong = emmclab("preset", "--ufs", path, "-o", tmp_path / "no.toml")
    assert wrong.returncode == 2 and "--ext-csd" in wrong.stderr and not (tmp_path / "no.toml").exists()


def test_explain_and_profile_say_what_device_a_recording_is_of(tmp_path: Path) -> None:
    path = recorded(tmp_path / "phone.parquet", card(["pre_eol_info is not there"]))
    said = emmclab("explain", path).stdout
    for part in ("mmcblk0: eMMC 5.1", "DF4032", "8 MB, on", "pre_eol_info is not there", "preset --from"):
        assert part in said, part
    (device,) = emmclab_json("explain", path)["registers"]
    assert (device["disks"], device["standard"], device["problem"]) == (["mmcblk0"], "eMMC 5.1", None)
    line = "Device: mmcblk0: eMMC 5.1; product: DF4032 (manufacturer 0x000045, OEM 0x0100), made 08/2016"
    page = tmp_path / "page.html"
    shown = " ".join(emmclab("profile", path, "--html", page).stdout.split())
    assert line in shown and "DF4032 (manufacturer" in page.read_text()
    copy = tmp_path / "copy.parquet"
    assert emmclab("convert", path, copy).returncode == 0
    assert api.registers(copy).facts == api.registers(path).facts


def test_without_the_register_sysfs_still_gives_a_preset(tmp_path: Path) -> None:
    path = recorded(tmp_path / "phone.parquet", card(["ext_csd is not there"], ext_csd=None))
    made = emmclab_json("preset", "--from", path)
    assert made["capacity_bytes"] == 15269888 * 512 and made["like"] == "emmc51-cache"
    (device,) = emmclab_json("explain", path)["registers"]
    known = {fact["topic"]: fact["text"] for fact in device["facts"]}
    assert known["life used, type B (mostly MLC, TLC)"] == "20 to 30 % of the life used"
    assert known["volatile cache"] is None and device["gaps"] == ["ext_csd is not there"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ext_csd": "00" * 512}, ["phone.parquet/mmc0:0001/ext_csd", "every byte is 0"]),
        ({"ext_csd": register().hex()[:600]}, ["mmc0:0001/ext_csd", "300 bytes"]),
        ({"ext_csd": register(EXT_CSD_REV=77).hex()}, ["EXT_CSD_REV", "0x4d", "no revision"]),
        ({"cid": "4501"}, ["mmc0:0001/cid", "CID", "4 digits"]),
        ({"life_time": "many"}, ["mmc0:0001/life_time", "1 value(s), not 2"]),
    ],
)
def test_damaged_registers_are_an_error_of_preset_and_a_note_of_the_others(
    tmp_path: Path, changes: dict[str, str], words: list[str]
) -> None:
    path, preset = recorded(tmp_path / "phone.parquet", card(**changes)), tmp_path / "my.toml"
    done = emmclab("preset", "--from", path, "-o", preset)
    assert done.returncode == 2 and not preset.exists() and "Traceback" not in done.stderr
    shown = emmclab("explain", path)
    profiled = emmclab("profile", path)
    assert (shown.returncode, profiled.returncode) == (0, 0)
    for word in words:
        assert word in done.stderr, (word, done.stderr)
        assert word in " ".join(shown.stdout.split()), (word, shown.stdout)
        word = word.removeprefix("phone.parquet/")
        assert "".join(word.split()) in "".join(profiled.stdout.split()), word


def test_a_wrong_checksum_and_a_newer_revision_are_notes(tmp_path: Path) -> None:
    path = recorded(tmp_path / "phone.parquet", card(cid=CID[:-2] + "35"))
    (device,) = emmclab_json("explain", path)["registers"]
    assert "checksum" in device["notes"][0] and device["standard"] == "eMMC 5.1"
    path = recorded(tmp_path / "newer.parquet", card(ext_csd=register(EXT_CSD_REV=9).hex()))
    (device,) = emmclab_json("explain", path)["registers"]
    assert any("revision 9" in note for note in device["notes"])


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([], ["no registers of a device", "record the device again"]),
        ([card(), ufs()], ["several devices (mmcblk0; sda)", "--device"]),
        ([{**card(), "files": {}, "gaps": ["ext_csd cannot be read"]}], ["ext_csd cannot be read"]),
        ([{"disks": 3}], ["damaged"]),
    ],
)
def test_a_recording_without_the_registers_of_one_device_is_refused_by_the_reason(
    tmp_path: Path, devices: list[dict[str, Any]], words: list[str]
) -> None:
    path = recorded(tmp_path / "phone.parquet", *devices)
    done = emmclab("preset", "--from", path, "-o", tmp_path / "my.toml")
    assert done.returncode == 2 and not (tmp_path / "my.toml").exists()
    for word in ("hint: ", *words):
        assert word in done.stderr, (word, done.stderr)
    assert emmclab("explain", path).returncode == 0


def test_a_recording_of_this_machine_holds_the_registers_of_its_device(loop: str, tmp_path: Path) -> None:
    need("unshare", "dd")
    block, folder = tmp_path / "block/mmcblk0", tmp_path / "soc/mmc0/mmc0:0001"
    for made in (block, folder, tmp_path / "debug/mmc0/mmc0:0001"):
        made.mkdir(parents=True)
    name = Path(loop).name
    for file in ("dev", "size"):
        (block / file).write_text(Path(f"/sys/block/{name}/{file}").read_text())
    (block / "device").symlink_to(folder)
    for file, text in {"type": "MMC", "cid": CID, "name": "DF4032"}.items():
        (folder / file).write_text(f"{text}\n")
    (tmp_path / "debug/mmc0/mmc0:0001/ext_csd").write_text(register().hex() + "\n")
    enter = f"mount --bind {tmp_path}/block /sys/block && mount --bind {tmp_path}/debug /sys/kernel/debug"
    read = ["dd", f"if={loop}", "of=/dev/null", "bs=64k", "count=2", "iflag=direct", "status=none"]
    path = tmp_path / "phone.parquet"
    words = [*COMMAND, "record", "--device", "mmcblk0", "-o", str(path), "--json", "--", *read]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{enter} && exec "$@"', "sh", *words],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (device,) = json.loads(done.stdout)["registers"]
    assert (device["kind"], device["standard"]) == ("emmc", "eMMC 5.1")
    assert "note: mmcblk0: registers incomplete: csd, manfid" in done.stderr
    assert api.registers(path).facts == emmclab_json("explain", path)["registers"][0]["facts"]
    assert emmclab_json("preset", "--from", path)["like"] == "emmc51-cache"

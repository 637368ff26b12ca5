"""Registers of real devices, in files and in recordings: `emmclab preset` and `emmclab explain`."""

import bz2
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emmclab as api
from conftest import (
    COMMAND,
    assert_fails,
    assert_refused,
    emmclab,
    emmclab_json,
    emmclab_ok,
    environment,
    execute,
    need,
)
from emmclab import _core
from emmclab.core_types import RegisterReport
from typed_fields import check_types

#: Fields of an 8 GB eMMC 5.1 as (lowest byte, bytes, value).
FIELDS = {
    "EXT_CSD_REV": (192, 1, 8),
    "CSD_STRUCTURE": (194, 1, 2),
    "S_CMD_SET": (504, 1, 1),
    "SEC_COUNT": (212, 4, 0x00E90000),
    "CACHE_SIZE": (249, 4, 0x00010000),
    "CACHE_CTRL": (33, 1, 1),
    "CMDQ_SUPPORT": (308, 1, 1),
    "CMDQ_DEPTH": (307, 1, 15),
    "MAX_PACKED_WRITES": (500, 1, 63),
    "MAX_PACKED_READS": (501, 1, 63),
    "WR_REL_PARAM": (166, 1, 0x14),
    "DEVICE_TYPE": (196, 1, 0x57),
    "DEVICE_LIFE_TIME_EST_TYP_A": (268, 1, 1),
    "DEVICE_LIFE_TIME_EST_TYP_B": (269, 1, 1),
    "PRE_EOL_INFO": (267, 1, 1),
    "HC_WP_GRP_SIZE": (221, 1, 16),
    "HC_ERASE_GRP_SIZE": (224, 1, 1),
    "ENH_SIZE_MULT": (140, 3, 0),
    "PARTITIONS_ATTRIBUTE": (156, 1, 0),
    "PARTITION_SETTING_COMPLETED": (155, 1, 0),
    "BARRIER_SUPPORT": (486, 1, 1),
}


def register(**changes: int) -> bytes:
    """Return the 512 bytes of the register, with other values of some fields."""
    out = bytearray(512)
    for name, (at, length, usual) in FIELDS.items():
        out[at : at + length] = changes.get(name, usual).to_bytes(length, "little")
    return bytes(out)


#: Files of a UFS 3.1 of 119 GB with a shared WriteBooster of 4 GB.
UFS = {
    "device_descriptor/specification_version": "0x0310",
    "device_descriptor/queue_depth": "0x20",
    "device_descriptor/ext_feature_sup": "0x00000100",
    "device_descriptor/wb_presv_us_en": "0x01",
    "device_descriptor/wb_type": "0x01",
    "device_descriptor/wb_shared_alloc_units": "0x00000400",
    "geometry_descriptor/segment_size": "0x00002000",
    "geometry_descriptor/allocation_unit_size": "0x01",
    "health_descriptor/eol_info": "0x02",
    "health_descriptor/life_time_estimation_a": "0x05",
    "power_info/gear": "HS_GEAR3",
    "power_info/lane": "1",
    "host0/target0:0:0/0:0:0:0/unit_descriptor/lu_enable": "0x01",
    "host0/target0:0:0/0:0:0:0/unit_descriptor/logical_block_size": "0x0C",
    "host0/target0:0:0/0:0:0:0/unit_descriptor/logical_block_count": "0x0000000001DC0000",
}


_SECTORS = 0x00E90000


def debugfs(path: Path, **changes: int) -> Path:
    path.write_text(register(**changes).hex() + "\n")
    return path


def ufs(folder: Path, **changes: str) -> Path:
    """Write a folder like that of sysfs; the keys of `changes` are file names."""
    for path, value in UFS.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(changes.get(file.name, value) + "\n")
    return folder


def loaded(path: Path) -> dict[str, str]:
    """Return the settings of a device file that emmclab has read, by key."""
    return {row.key: row.value for row in api.Device.file(path).explain()}


def test_a_preset_has_what_the_register_says_and_runs(trace: Path, tmp_path: Path) -> None:
    source, preset = debugfs(tmp_path / "ext_csd"), tmp_path / "my.toml"
    output = emmclab_json("preset", "--ext-csd", source, "-o", preset)
    assert preset.read_text() == output["toml"]
    assert (output["like"], output["capacity_bytes"]) == ("emmc51-cache", _SECTORS * 512)
    result = loaded(preset)
    for key, value in {
        "name": '"my"',
        "cache.size_kb": "8192",
        "controller.queue_depth": "16",
        "features.packed_writes": "63",
        "features.packed_reads": "63",
        "features.reliable_write": "true",
        "features.barrier": "true",
        "controller.bus_mode": '"hs400"',
    }.items():
        assert result[key] == value, key
    run = emmclab_json("simulate", trace, "--device", preset, "--wrap-addresses")
    assert run["requests"]["total"] == 400


def test_the_file_round_trips_and_its_digest_is_the_same_each_time(tmp_path: Path) -> None:
    source = debugfs(tmp_path / "ext_csd")
    files = [tmp_path / "one.toml", tmp_path / "two.toml"]
    outputs = [emmclab_json("preset", "--ext-csd", source, "--name", "same", "-o", file) for file in files]
    assert files[0].read_bytes() == files[1].read_bytes()
    device = api.Device.file(files[0])
    assert device.digest == outputs[0]["digest"] == outputs[1]["digest"]
    assert api.Device.from_toml(device.to_toml()).digest == device.digest
    assert api.registers(source).preset(name="same").toml == outputs[0]["toml"]


def test_each_value_says_where_it_is_from(tmp_path: Path) -> None:
    preset = tmp_path / "my.toml"
    emmclab("preset", "--ext-csd", debugfs(tmp_path / "ext_csd"), "-o", preset)
    text = preset.read_text()
    values = [line for line in text.splitlines() if " = " in line and not line.startswith(("#", "name", "about"))]
    assert len(values) > 30
    for line in values:
        assert any(f"# {mark}: " in line for mark in ("read", "sized", "assumed")), line
    assert "size_kb = 8192 # read: CACHE_SIZE [252:249] = 0x00010000" in text
    assert "program_us = 800.0 # assumed: emmc51-cache" in text
    assert "emmclab calibrate" in text


@pytest.mark.parametrize("like", ["emmc51-cache", "emmc50-cache", "nexus5", "iiswc15-hps", "emmc50-write-through"])
@pytest.mark.parametrize("cache", [0, 65_536])
def test_any_preset_of_the_same_kind_may_be_the_base(tmp_path: Path, like: str, cache: int) -> None:
    source = debugfs(tmp_path / "ext_csd", CACHE_SIZE=cache)
    output = emmclab_json("preset", "--ext-csd", source, "--like", like)
    assert (output["like"], output["capacity_bytes"]) == (like, _SECTORS * 512)


def test_a_ufs_is_read_as_folder_archive_listing_and_link(trace: Path, tmp_path: Path) -> None:
    folder = ufs(tmp_path / "1d84000.ufshc")
    archives = [tmp_path / "ufs.tar", tmp_path / "ufs.tar.gz"]
    for archive in archives:
        with tarfile.open(archive, "w:gz" if archive.suffix == ".gz" else "w") as file:
            file.add(folder, ".")
    listing = tmp_path / "listing.txt"
    listing.write_text(execute("grep", "-r", ".", ".", cwd=folder).stdout)
    link = tmp_path / "link"
    link.symlink_to(folder)
    outputs = [
        emmclab_json("preset", "--ufs", source, "--name", "phone", "-o", tmp_path / "phone.toml")
        for source in (folder, *archives, listing, link)
    ]
    assert outputs[0]["like"] == "ufs31" and outputs[0]["capacity_bytes"] == 0x1DC0000 << 12
    for output in outputs:
        assert (output["settings"], output["capacity_bytes"]) == (outputs[0]["settings"], outputs[0]["capacity_bytes"])
    result = loaded(tmp_path / "phone.toml")
    for key, value in {
        "interface.gear": '"hs_g3"',
        "interface.lanes": "1",
        "controller.queue_depth": "32",
        "slc.mode": '"cache"',
        "slc.preserve_user_space": "true",
    }.items():
        assert result[key] == value, key
    run = emmclab_json("simulate", trace, "--device", tmp_path / "phone.toml")
    assert run["requests"]["total"] == 400


def test_explain_says_what_a_device_can_do_and_how_worn_it_is(tmp_path: Path) -> None:
    done = emmclab_ok("explain", debugfs(tmp_path / "dump.txt"), env={"COLUMNS": "200"})
    for words in ("7,456 MB", "8 MB, on", "16 commands", "up to 63 entries", "0 to 10 % of the life used", "normal"):
        assert words in done.stdout, words
    firmware = next(line for line in done.stdout.splitlines() if line.startswith("firmware "))
    assert "–" in firmware, "what is not known is a dash"
    output = emmclab_json("explain", tmp_path / "dump.txt")
    fields = {row["name"]: row["value"] for row in output["fields"]}
    assert (fields["CACHE_SIZE"], fields["SEC_COUNT"], fields["CMDQ_DEPTH"]) == (65_536, _SECTORS, 15)
    assert output["standard"] == "eMMC 5.1"
    phone = emmclab_json("explain", ufs(tmp_path / "ufshc"))
    facts = {fact["topic"]: fact["text"] for fact in phone["facts"]}
    assert facts["spare blocks"] == "warning: 80 % of the spare blocks used"
    assert facts["life used, type A (mostly SLC)"] == "40 to 50 % of the life used"
    assert facts["firmware"] is None


def test_names_that_are_no_text_are_written_as_such(tmp_path: Path) -> None:
    source, preset = tmp_path / "dump\udcff", tmp_path / "own\udcff.toml"
    debugfs(source)
    emmclab_ok("preset", "--ext-csd", source, "-o", preset)
    assert api.Device.file(preset).name == "own\N{REPLACEMENT CHARACTER}"


def test_a_register_comes_from_stdin() -> None:
    output = emmclab_ok("preset", "--ext-csd", "-", "--name", "piped", input=register().hex())
    assert 'name = "piped"' in output.stdout


def test_a_preset_without_a_stated_capacity_says_so_first(tmp_path: Path) -> None:
    preset = tmp_path / "my.toml"
    for source in (debugfs(tmp_path / "ext_csd", SEC_COUNT=0xFFFFFFFF), tmp_path / "health"):
        if source.name == "health":
            source.write_bytes(bytes([0x25, 9, 1, 2, 1, *bytes(32)]))
        option = "--ufs" if source.name == "health" else "--ext-csd"
        done = emmclab("preset", option, source, "-o", preset)
        first = done.stderr.splitlines()[0]
        assert done.returncode == 0 and "no register states the capacity" in first, done.stderr
        assert preset.read_text().splitlines()[0].startswith("# No register states the capacity: ")
        assert emmclab_json("preset", option, source)["assumed_capacity"] in first
        assert loaded(preset)["about"].startswith('"') and "unknown capacity" in loaded(preset)["about"]
    assert emmclab_json("preset", "--ext-csd", debugfs(tmp_path / "whole"))["assumed_capacity"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ext-csd", "ext_csd", "--ufs", "ufshc"), ["one device"]),
        (("--ext-csd", "ufshc"), ["--ufs"]),
        (("--ufs", "ext_csd"), ["--ext-csd"]),
        (("--ufs", "empty"), ["empty", "neither an EXT_CSD register nor a descriptor"]),
        (("--ufs", "cut.tar.gz"), ["cut.tar.gz", "damaged"]),
        (("--ext-csd", "ext_csd", "--like", "galaxys2"), ["galaxys2", "mapping.scheme", "--like"]),
        (("--ext-csd", "ext_csd", "--like", "nexus"), ["nexus"]),
        (("--ext-csd", "/dev/zero"), ["/dev/zero: the file is larger"]),
    ],
)
def test_contradicting_options_are_refused(tmp_path: Path, arguments: tuple[str, ...], words: list[str]) -> None:
    debugfs(tmp_path / "ext_csd")
    with tarfile.open(tmp_path / "whole.tar.gz", "w:gz") as file:
        file.add(ufs(tmp_path / "ufshc"), ".")
    (tmp_path / "cut.tar.gz").write_bytes((tmp_path / "whole.tar.gz").read_bytes()[:200])
    (tmp_path / "empty").mkdir()
    assert_fails(emmclab("preset", *arguments, "-o", "my.toml", cwd=tmp_path), *words)
    assert not (tmp_path / "my.toml").exists()


def test_a_report_has_the_typed_fields_and_no_other(tmp_path: Path) -> None:
    dump = tmp_path / "ext_csd"
    dump.write_bytes(register())
    report = api.registers(dump).report
    assert report.capacity and report.facts and report.settings
    check_types(report, RegisterReport)


def test_other_commands_name_the_commands_that_read_registers(tmp_path: Path) -> None:
    listing = tmp_path / "listing.txt"
    listing.write_text("".join(f"{path}:{value}\n" for path, value in UFS.items()))
    for source, word in ((debugfs(tmp_path / "dump"), "--ext-csd"), (listing, "--ufs")):
        assert_refused(emmclab("profile", source), "emmclab explain", word)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), st.integers(0, 255), max_size=8))
def test_registers_give_a_device_or_an_error(tmp_path_factory: pytest.TempPathFactory, changes: dict[str, int]) -> None:
    _answers(debugfs(tmp_path_factory.mktemp("any") / "dump", **changes))


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(sorted({Path(path).name for path in UFS})),
        st.one_of(st.integers(0, 2**64 - 1).map(hex), st.sampled_from(["", "true", "UNKNOWN", "-1"])),
        max_size=6,
    )
)
def test_descriptors_give_device_or_error(tmp_path_factory: pytest.TempPathFactory, changes: dict[str, str]) -> None:
    _answers(ufs(tmp_path_factory.mktemp("any") / "ufshc", **changes))


def _answers(source: Path) -> None:
    """Check that registers are converted to a device, or cause an error with a hint."""
    try:
        preset = api.registers(source).preset()
    except api.EmmclabError as error:
        assert error.hint
        return
    assert api.Device.from_toml(preset.toml).digest == preset.device.digest


@pytest.fixture
def real_dumps(shared_traces: Path) -> Path:
    """The register of a real device in several forms."""
    folder = shared_traces.parent / "cases" / "30-ext-csd"
    if not folder.is_dir():
        pytest.skip("the dumps of a real device are not on this machine")
    return folder


@pytest.mark.parametrize("name", ["ext_csd", "ext_csd.bin", "u-boot.txt", "esp-idf-words.txt", "mmc-utils.txt"])
def test_the_register_of_a_real_device_is_read_in_each_form(name: str, real_dumps: Path, tmp_path: Path) -> None:
    output: dict[str, Any] = emmclab_json("preset", "--ext-csd", real_dumps / name, "-o", tmp_path / "my.toml")
    assert output["capacity_bytes"] == 7456 << 20
    result = {row["key"]: json.loads(row["value"]) for row in output["settings"]}
    assert result["cache.size_kb"] == 8192
    assert result["controller.queue_depth"] == 16
    assert (result["features.packed_writes"], result["features.packed_reads"]) == (63, 63)
    assert result["features.reliable_write"] is True
    facts = {fact["topic"]: fact["text"] for fact in emmclab_json("explain", real_dumps / name)["facts"]}
    assert facts["life used, type A (mostly SLC)"] == "0 to 10 % of the life used"


def test_an_archive_that_unpacks_to_far_more_than_registers_is_refused(tmp_path: Path) -> None:
    """The archive is read only up to a limit, and the command ends within seconds."""
    zeros = tarfile.TarInfo("zeros")
    zeros.size = 320 << 20
    archive = tmp_path / "bomb.tar.bz2"
    archive.write_bytes(
        b"".join([bz2.compress(zeros.tobuf()), bz2.compress(bytes(32 << 20)) * 10, bz2.compress(bytes(1024))])
    )
    assert_refused(
        emmclab("preset", "--ufs", archive), "the archive unpacks to more than 256 MB", "hint: unpack the archive"
    )


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
    """Return an eMMC with its registers; the keys of `changes` are file names, and None removes a file."""
    files = {**CARD, "ext_csd": register().hex(), **changes}
    contents = {name: text for name, text in files.items() if text is not None}
    folder = "/sys/devices/platform/soc/mmc_host/mmc0/mmc0:0001"
    return {"disks": ["mmcblk0"], "kind": "emmc", "folder": folder, "files": contents, "gaps": gaps or []}


def ufs_device() -> dict[str, Any]:
    folder = "/sys/devices/platform/soc/1d84000.ufshc"
    return {"disks": ["sda"], "kind": "ufs", "folder": folder, "files": dict(UFS), "gaps": []}


def test_a_preset_is_made_of_a_recording_as_of_its_registers(tmp_path: Path) -> None:
    path, dump = recorded(tmp_path / "phone.parquet", card()), tmp_path / "ext_csd"
    dump.write_text(register().hex())
    output = emmclab_json("preset", "--from", path, "--name", "same")
    assert f"write `emmclab preset --from {path}`" in emmclab("preset", path).stderr
    direct = emmclab_json("preset", "--ext-csd", dump, "--name", "same")
    assert (output["like"], output["settings"]) == (direct["like"], direct["settings"])
    assert output["capacity_bytes"] == direct["capacity_bytes"]
    assert emmclab_json("preset", "--ext-csd", path, "--name", "same")["digest"] == output["digest"]
    assert emmclab_json("preset", "--from", recorded(tmp_path / "u.parquet", ufs_device()))["like"] == "ufs31"
    wrong = emmclab("preset", "--ufs", path, "-o", tmp_path / "no.toml")
    assert wrong.returncode == 2 and "--ext-csd" in wrong.stderr and not (tmp_path / "no.toml").exists()


def test_explain_and_profile_say_what_device_a_recording_is_of(tmp_path: Path) -> None:
    path = recorded(tmp_path / "phone.parquet", card(["pre_eol_info is not there"]))
    stdout = emmclab("explain", path).stdout
    for part in ("mmcblk0: eMMC 5.1", "DF4032", "8 MB, on", "pre_eol_info is not there", "preset --from"):
        assert part in stdout, part
    (device,) = emmclab_json("explain", path)["registers"]
    assert (device["disks"], device["standard"], device["problem"]) == (["mmcblk0"], "eMMC 5.1", None)
    line = "Device: mmcblk0: eMMC 5.1; product: DF4032 (manufacturer 0x000045, OEM 0x0100), made 08/2016"
    page = tmp_path / "page.html"
    text = " ".join(emmclab("profile", path, "--html", page).stdout.split())
    assert line in text and "DF4032 (manufacturer" in page.read_text()
    copy = tmp_path / "copy.parquet"
    assert emmclab("convert", path, copy).returncode == 0
    assert api.registers(copy).facts == api.registers(path).facts


def test_without_the_register_sysfs_still_gives_a_preset(tmp_path: Path) -> None:
    path = recorded(tmp_path / "phone.parquet", card(["ext_csd is not there"], ext_csd=None))
    output = emmclab_json("preset", "--from", path)
    assert output["capacity_bytes"] == 15269888 * 512 and output["like"] == "emmc51-cache"
    (device,) = emmclab_json("explain", path)["registers"]
    fields = {fact["topic"]: fact["text"] for fact in device["facts"]}
    assert fields["life used, type B (mostly MLC, TLC)"] == "20 to 30 % of the life used"
    assert fields["volatile cache"] is None and device["gaps"] == ["ext_csd is not there"]


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
def test_damaged_registers_are_an_error_or_a_note(tmp_path: Path, changes: dict[str, str], words: list[str]) -> None:
    path, preset = recorded(tmp_path / "phone.parquet", card(**changes)), tmp_path / "my.toml"
    assert_fails(emmclab("preset", "--from", path, "-o", preset), *words)
    assert not preset.exists()
    explained, profiled = (emmclab_ok(command, path) for command in ("explain", "profile"))
    for word in words:
        assert word in " ".join(explained.stdout.split()), (word, explained.stdout)
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
        ([card(), ufs_device()], ["several devices (mmcblk0; sda)", "--device"]),
        ([{**card(), "files": {}, "gaps": ["ext_csd cannot be read"]}], ["ext_csd cannot be read"]),
        ([{"disks": 3}], ["damaged"]),
    ],
)
def test_recordings_without_them_are_refused(tmp_path: Path, devices: list[dict[str, Any]], words: list[str]) -> None:
    path = recorded(tmp_path / "phone.parquet", *devices)
    assert_fails(emmclab("preset", "--from", path, "-o", tmp_path / "my.toml"), *words)
    assert not (tmp_path / "my.toml").exists()
    assert emmclab("explain", path).returncode == 0


def test_a_recording_of_this_machine_holds_the_registers_of_its_device(loop: str, tmp_path: Path) -> None:
    need("unshare", "dd")
    block, folder = tmp_path / "block/mmcblk0", tmp_path / "soc/mmc0/mmc0:0001"
    for created in (block, folder, tmp_path / "debug/mmc0/mmc0:0001"):
        created.mkdir(parents=True)
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
    done = execute("unshare", "-m", "sh", "-c", f'{enter} && exec "$@"', "sh", *words, env=environment())
    (device,) = json.loads(done.stdout)["registers"]
    assert (device["kind"], device["standard"]) == ("emmc", "eMMC 5.1")
    assert "note: mmcblk0: registers incomplete: csd, manfid" in done.stderr
    assert api.registers(path).facts == emmclab_json("explain", path)["registers"][0]["facts"]
    assert emmclab_json("preset", "--from", path)["like"] == "emmc51-cache"

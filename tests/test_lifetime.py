"""Estimated lifetimes agree with devices that are written until they are worn out, and with a calculation by hand."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import emmclab as lab
from conftest import assert_fails, assert_refused, emmclab, emmclab_json
from emmclab.advice.lifetime import estimate_lifetime
from emmclab.advice.lifetime_load import Load, load_of_pattern, load_of_trace
from emmclab.advice.lifetime_text import remarks
from emmclab.errors import ConfigError, EmmclabError
from emmclab.simulation.device import Device
from emmclab.traces.disk_counters import growth, holds_counters

GROUP = "geometry.block_groups.0."
#: Settings of a device of 28 MB whose wear-out takes a second to simulate.
TINY = {
    GROUP + "blocks": 32,
    GROUP + "pages_per_block": 64,
    GROUP + "spare_blocks": 2,
    GROUP + "erase_limit": 1000,
    "wear.levelling": "dynamic",
}
SPAN = 1 << 23


def tiny(**more: str | float) -> Device:
    """Return the device, with settings whose names have `__` for a dot."""
    return Device.preset("small-1gb").set({**TINY, **{key.replace("__", "."): value for key, value in more.items()}})


def worn_out(device: Device, load: Load, filled_pct: float) -> float:
    """Return the bytes that a device takes until it is worn out."""
    options: Any = {"mode": load.mode, "rate": load.rate, "wrap_addresses": True}
    run = device.simulate(load.trace(400_000, 7), precondition=f"sequential:{filled_pct:g}", **options)
    assert "worn out" in (run.run.stopped or ""), run.run
    return float(run.requests.bytes_written)


@pytest.mark.parametrize(
    ("device", "filled_pct", "kind"),
    [
        pytest.param(tiny(), 0, "MLC", id="uniform"),
        pytest.param(tiny(wear__levelling="static", wear__threshold=5), 60, "MLC", id="static"),
        pytest.param(
            tiny(slc__mode="cache", slc__blocks=6, slc__erase_limit=2000, slc__max_kb=1024, slc__fold_after_us=1000),
            50,
            "SLC cache",
            id="slc",
        ),
    ],
)
def test_the_estimate_is_within_5_pct_of_a_device_that_is_written_to_its_end(
    device: Device, filled_pct: float, kind: str
) -> None:
    load = load_of_pattern(1e9, span=SPAN)
    life = estimate_lifetime(device, load, filled_pct=filled_pct, limit_factor=1, seeds=1)
    assert (life.ends_first, life.is_steady) == (kind, True)
    assert worn_out(device, load, filled_pct) == pytest.approx(life.host_bytes.value, rel=0.05)
    assert life.years.value == pytest.approx(life.host_bytes.value / 1e9 / 365.25)


@pytest.mark.parametrize(
    ("filled_pct", "span", "within"), [(75, SPAN, 0.05), (30, SPAN // 2, 0.07), (90, SPAN // 2, 0.07)]
)
def test_without_static_levelling_cold_data_keeps_its_blocks_out_of_the_wear(
    filled_pct: int, span: int, within: float
) -> None:
    device, load = tiny(), load_of_pattern(1e9, span=span)
    life = estimate_lifetime(device, load, filled_pct=filled_pct, limit_factor=1, seeds=1)
    (uneven,) = (one.years for one in life.assumptions if one.name == "wear levelling")
    assert uneven is not None
    assert worn_out(device, load, filled_pct) == pytest.approx(uneven * 365.25e9, rel=within)
    assert any("an estimate, not a bound: simulated devices" in text for text in remarks(life))


@pytest.mark.parametrize(
    ("device", "load", "kind", "blocks", "pages", "page_bytes", "erases", "pages_per_page_of_data"),
    [
        ("sandisk-extreme-a2", ("sequential", "512KB"), "TLC", 4 * (1506 - 17), 768, 16_384, 3000, 1),
        ("nexus5", ("sequential", "512KB"), "MLC, pages of 16 KB", 8 * 959, 256, 16_384, 3000, 1),
        ("emmc51-cache", ("random", "4KB"), "SLC cache", 4 * 40, 384, 16_384, 30_000, 4),
    ],
)
def test_years_are_those_of_a_spreadsheet(
    device: str,
    load: tuple[str, str],
    kind: str,
    blocks: int,
    pages: int,
    page_bytes: int,
    erases: int,
    pages_per_page_of_data: int,
) -> None:
    addresses, size = load
    daily = ("--daily", "8GB", "--pattern", addresses, "--size", size, "--seeds", "1")
    life = emmclab_json("lifetime", *daily, "--device", device)
    written = blocks * pages * page_bytes * erases / pages_per_page_of_data
    years = written / 8_000_000_000 / 365.25
    assert life["ends_first"] == kind
    assert life["host_bytes"]["value"] == pytest.approx(written, rel=0.02)
    assert life["years"]["value"] == pytest.approx(years, rel=0.02)
    assert life["years"]["low"] == pytest.approx(years / 2, rel=0.02)
    assert life["years"]["high"] == pytest.approx(years * 2, rel=0.02)
    assert sum(life["waf_parts"].values()) == pytest.approx(life["waf"])
    if device == "nexus5":
        return
    # The register grows by one for each tenth of the life. Two kinds of nexus5 share one register.
    steps = [row["type_a" if kind == "SLC cache" else "type_b"]["value"] for row in life["registers"]]
    expected = [min(11, max(1, -int(-10 * row["years"] / years // 1))) for row in life["registers"]]
    assert all(abs(step - want) <= 1 for step, want in zip(steps, expected, strict=True)) and steps[-1] == 11


def test_a_day_of_a_recording_is_its_own_rate_or_the_given_amount() -> None:
    trace = lab.read(next(path for path in lab.bundled() if path.stem == "messages-wal"))
    profile = trace.profile()
    written = sum(row["data_kb"] for row in profile["by_operation"] if row["op"] == "write") * 1024
    natural, given = load_of_trace(trace), load_of_trace(trace, 5e9)
    assert natural.daily_bytes == pytest.approx(written / profile["duration_s"] * 86_400)
    assert given.rate == pytest.approx(5e9 / natural.daily_bytes)
    device = Device.preset("nexus5", capacity="1GB")
    lives = [estimate_lifetime(device, load, seeds=1) for load in (natural, given)]
    assert lives[0].years.value * natural.daily_bytes == pytest.approx(lives[1].years.value * 5e9, rel=0.05)
    assert "day" in [one.name for one in lives[0].assumptions] and "day" not in [
        one.name for one in lives[1].assumptions
    ]


#: Lines of /proc/diskstats of Linux 5.5 and later, for a disk and its partition.
DISKSTATS = " 179 0 mmcblk0 700 0 80 500 {writes} 10 {sectors} 900 0 100 1400 5 0 0 0 {flushes} 0\n"
PARTITION = " 179 1 mmcblk0p1 1 0 8 5 {writes} 10 {sectors} 900 0 100 1400 5 0 0 0 0 0\n"
FIRST = {"writes": 2000, "sectors": 400_000, "flushes": 30}
LAST = {"writes": 52_000, "sectors": 2_400_000, "flushes": 1030}


def counters(folder: Path, *texts: str) -> list[Path]:
    """Write files with readings of counters."""
    paths = [folder / f"reading-{number}.txt" for number, _ in enumerate(texts)]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


@pytest.mark.parametrize("form", ["two files", "one file", "sysfs", "iso"])
def test_two_readings_of_the_counters_of_a_disk_give_what_was_written(tmp_path: Path, form: str) -> None:
    line = (DISKSTATS + PARTITION).format
    first, last = line(**FIRST), line(**LAST)
    if form == "sysfs":
        first, last = (text.split("mmcblk0", 1)[1].split("\n", 1)[0] + "\n" for text in (first, last))
    if form in ("one file", "iso"):
        times = ("1700000000", "1700003600") if form == "one file" else ("2026-11-30T07:00:00", "2026-11-30T08:00:00")
        paths = counters(tmp_path, f"{times[0]}\n{first}{times[1]}\n{last}")
        grown = growth(paths)
    else:
        paths = counters(tmp_path, first, last)
        grown = growth(paths, over_s=3600)
    assert all(map(holds_counters, paths)) and not holds_counters(next(iter(lab.bundled())))
    assert (grown.seconds, grown.writes, grown.flushes) == (3600, 50_000, 1000)
    assert grown.bytes_written == 2_000_000 * 512
    assert grown.disk == ("" if form == "sysfs" else "mmcblk0")


@pytest.mark.parametrize(
    ("texts", "options", "named"),
    [
        ((DISKSTATS.format(**LAST), DISKSTATS.format(**FIRST)), {"over_s": 60}, "went back, from 52,000 to 2,000"),
        ((DISKSTATS.format(**FIRST), DISKSTATS.format(**FIRST)), {"over_s": 60}, "nothing was written to mmcblk0"),
        ((DISKSTATS.format(**FIRST), DISKSTATS.format(**LAST)), {}, "the time between the two readings is not known"),
        ((DISKSTATS.format(**FIRST),), {"over_s": 60}, "one reading"),
        ((f"20\n{DISKSTATS.format(**FIRST)}10\n{DISKSTATS.format(**LAST)}",), {}, "10 s before the first"),
        ((DISKSTATS.format(**FIRST), "hello"), {"over_s": 60}, "reading-1.txt:1"),
        ((DISKSTATS.format(**FIRST), DISKSTATS.format(**LAST)), {"over_s": 60, "disk": "sda"}, "no disk `sda`"),
        (
            tuple(DISKSTATS.format(**at) + DISKSTATS.format(**at).replace("mmcblk0", "sda") for at in (FIRST, LAST)),
            {"over_s": 60},
            "several disks were written: mmcblk0, sda",
        ),
    ],
)
def test_readings_without_an_answer_are_refused(
    tmp_path: Path, texts: tuple[str, ...], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(EmmclabError, match=named) as raised:
        growth(counters(tmp_path, *texts), **options)
    assert raised.value.hint


def test_counters_become_writes_of_their_mean_size_with_their_flushes(tmp_path: Path) -> None:
    paths = counters(tmp_path, DISKSTATS.format(**FIRST), DISKSTATS.format(**LAST))
    life = emmclab_json(
        "lifetime", *paths, "--over", "1h", "--device", "emmc51-cache", "--seeds", "1", "--capacity", "8GB"
    )
    assert life["daily_bytes"] == 24 * 2_000_000 * 512
    assert life["load"] == "the counters of mmcblk0" and "flushes" not in [one["name"] for one in life["assumptions"]]


def register(tmp_path: Path, **values: int) -> Path:
    """Write an EXT_CSD register of an eMMC 5.1 of 4 GB, with further bytes by their number."""
    content = bytearray(512)
    usual = {192: 8, 194: 2, 196: 0x57, 212: 0, 213: 0, 214: 0x80, 215: 0, 251: 1, 504: 1}
    for at, value in (usual | {int(name[1:]): value for name, value in values.items()}).items():
        content[at] = value
    path = tmp_path / "ext_csd.txt"
    path.write_text(content.hex())
    return path


def test_the_registers_of_the_real_device_state_the_life_that_is_used(tmp_path: Path) -> None:
    load = ("--daily", "10GB", "--size", "64KB", "--seeds", "1", "--like", "emmc51-tlc")
    new, worn = (emmclab_json("lifetime", *load, "--ext-csd", register(tmp_path, b268=1, b269=used)) for used in (1, 3))
    whole = new["host_bytes"]["value"] / 1e10 / 365.25
    # 0x03 is 20 to 30 % of the life used, so that 70 to 80 % are left.
    assert worn["host_bytes"] == new["host_bytes"]
    assert worn["years"]["value"] == pytest.approx(0.75 * whole)
    assert worn["years_of_start"] == pytest.approx([0.7 * whole, 0.8 * whole])
    assert worn["registers"][0]["type_b"]["value"] == 3
    over = emmclab_json("lifetime", *load, "--ext-csd", register(tmp_path, b268=1, b269=11))
    assert over["years"]["value"] == 0.0 and any("0x0B" in note for note in over["notes"])


def health_report(path: Path, mean: int, rated: int = 3000) -> Path:
    """Write a report of an ADATA card with this mean of erases."""
    content = bytearray(512)
    content[:2], content[44:48], content[68:70] = b"\x09\x41", mean.to_bytes(4), rated.to_bytes(2)
    content[36:40] = (2 * mean).to_bytes(4)
    path.write_bytes(content)
    return path


def test_erase_counts_state_the_life_that_is_used_exactly(tmp_path: Path) -> None:
    load = ("lifetime", "--daily", "10GB", "--size", "64KB", "--seeds", "1", "--device", "emmc51-tlc")
    new, worn = (emmclab_json(*load, "--health", health_report(tmp_path / "report", mean)) for mean in (1, 750))
    # 750 of 3,000 erases: a quarter of the life, without a step of 10 %.
    assert worn["years"]["value"] == pytest.approx(0.75 / (1 - 1 / 3000) * new["years"]["value"])
    assert worn["years_of_start"] == pytest.approx([worn["years"]["value"]] * 2)
    assert worn["kinds"][0]["used_now_pct"] == pytest.approx(25)
    rated = emmclab_json(*load, "--health", health_report(tmp_path / "report", 750, 1500))
    assert any("block_groups.0.erase_limit=1500" in note for note in rated["notes"])
    slc_only = bytes(512).hex().replace("00", "01", 1)
    (tmp_path / "none").write_text(slc_only)
    assert_refused(emmclab(*load, "--health", f"{tmp_path / 'none'}@hynix-v1"), "every known field is 0")
    assert_refused(emmclab(*load, "--health", health_report(tmp_path / "report", 9), "--used", "1y"), "--used")


def test_a_used_device_has_less_left_than_a_new_one() -> None:
    load = ("--daily", "1GB", "--size", "64KB", "--device", "nexus5", "--capacity", "1GB", "--seeds", "1")
    new, used = (emmclab_json("lifetime", *load, *more) for more in ((), ("--used", "1y,daily=100MB")))
    assert used["left_bytes"] < used["host_bytes"]["value"] == pytest.approx(new["host_bytes"]["value"], rel=0.25)
    assert any(kind["used_now_pct"] > 1 for kind in used["kinds"])


def bounds_by_trial(values: dict[int, int]) -> tuple[float, float, float, float]:
    """Return the extreme rates a year and ends in years of all lines of a fine grid that agree with the readings."""
    lines = [
        (rate, (1 - offset) / rate)
        for rate in (step / 400 for step in range(1, 800))
        for offset in (step / 400 for step in range(-800, 800))
        if all((value - 1) / 10 <= offset + rate * years <= value / 10 for years, value in values.items())
    ]
    rates, ends = zip(*lines, strict=True)
    return min(rates), max(rates), min(ends), max(ends)


@pytest.mark.parametrize("values", [{0: 2, 1: 4}, {0: 1, 1: 3, 2: 4}, {0: 3, 2: 5, 3: 6}, {0: 1, 1: 2, 2: 3, 3: 5}])
def test_bounds_of_dated_registers_are_those_of_every_constant_rate(tmp_path: Path, values: dict[int, int]) -> None:
    sources = []
    for years, value in values.items():
        path = register(tmp_path, b268=1, b269=value)
        sources.append(f"{path.rename(tmp_path / f'{years}.txt')}@{2020 + years}-01-01")
    done = emmclab_json("lifetime", "--registers", *sources)
    (trend,) = (one for one in done["registers"] if one["register"].endswith("TYP_B"))
    least, most, earliest, latest = bounds_by_trial(values)
    assert trend["rate_pct"] == pytest.approx([100 * least, 100 * most], abs=0.6)
    ends = [(date.fromisoformat(text) - date(2020, 1, 1)).days / 365.25 for text in trend["end"]]
    assert ends == pytest.approx([earliest, latest], rel=0.03)


def test_dated_registers_are_compared_with_the_simulated_device(tmp_path: Path) -> None:
    old = register(tmp_path, b268=1, b269=1).rename(tmp_path / "old.txt")
    new = register(tmp_path, b268=1, b269=2)
    sources = ("lifetime", "--registers", f"{old}@2025-06-01", f"{new}@2026-06-01")
    done = emmclab("lifetime", *sources[1:], "--daily", "2GB", "--size", "64KB", "--seeds", "1", "--like", "emmc51-tlc")
    assert done.returncode == 0 and "does not end before" in done.stdout and "Simulated" in done.stdout, done.stderr
    assert_fails(emmclab(*sources[:2], sources[3]), "two or more different dates")
    assert_fails(emmclab(*sources[:2], f"{new}@2025-01-01", f"{old}@2026-01-01"), "went back, from 0x02 to 0x01")
    assert_fails(emmclab(*sources[:2], str(old), f"{new}@2026-06-01"), "has no date")
    uneven = [
        f"{register(tmp_path, b269=value).rename(tmp_path / f'{value}')}@{year}-01-01"
        for year, value in ((2020, 3), (2022, 5), (2023, 8))
    ]
    assert "contradict a constant rate" in emmclab(*sources[:2], *uneven).stdout
    bigger = register(tmp_path, b269=3, b215=7)
    assert_fails(emmclab(*sources[:3], f"{bigger}@2026-06-01"), "another device")


def test_changes_are_ranked_by_the_years_gained_and_have_a_price() -> None:
    device = ("--device", "emmc51-cache", "--capacity", "4GB", "--seeds", "1")
    life = emmclab_json("lifetime", "--daily", "1GB", "--flush-every", "1", *device, "--changes")
    gained = [change["gained_years"] for change in life["changes"] if change["years"] is not None]
    assert gained == sorted(gained, reverse=True) and all(change["price"] for change in life["changes"])
    factors = {one["name"]: (one["years"] or 0) / life["years"]["value"] for one in life["changes"]}
    # Twice as many SLC blocks are erased half as often. Eight writes of 4 KB at once fill two pages of 16 KB.
    assert factors["SLC cache"] == pytest.approx(2, rel=0.05)
    assert factors["batching"] == pytest.approx(4, rel=0.05)
    prices = {change["name"]: change["price"] for change in life["changes"]}
    # 1 GB a day are 2.83 writes of 4 KB a second.
    assert prices["batching"] == "the application loses up to 2.83 s of data with the power"
    assert prices["over-provisioning"].startswith("-") and "of the capacity" in prices["over-provisioning"]
    trace = next(path for path in lab.bundled() if path.stem == "messages-wal")
    traced = emmclab_json("lifetime", trace, "--daily", "1GB", *device, "--changes")["changes"][-1]
    assert (traced["name"], traced["years"]) == ("batching", None) and "not known" in traced["price"]


def test_a_page_has_the_answer_and_the_registers(tmp_path: Path) -> None:
    page = tmp_path / "life.html"
    device = ("--device", "ufs22", "--capacity", "4GB", "--seeds", "1")
    done = emmclab("lifetime", "--daily", "1GB", *device, "--html", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "bDeviceLifeTimeEstA" in text and done.stdout.splitlines()[0].partition(":")[0] in text


def test_an_sd_card_has_no_life_time_registers() -> None:
    card = ("--device", "sandisk-extreme-a2", "--capacity", "4GB", "--seeds", "1")
    done = emmclab("lifetime", "--daily", "5GB", "--size", "64KB", *card, "--changes")
    assert done.returncode == 0, done.stderr
    assert "Life-time registers" not in done.stdout and "sandisk-extreme-a1" in done.stdout


def test_registers_of_another_device_than_the_recorded_one_are_refused(tmp_path: Path) -> None:
    from test_followed_pages import bring_inputs

    bring_inputs(tmp_path)
    done = emmclab("lifetime", tmp_path / "phone.parquet", "--ext-csd", register(tmp_path))
    assert_fails(done, "another device", "in place of 60,129,542,144")


def test_a_job_file_has_no_pauses_and_needs_a_daily_amount(tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text("[random]\nrw=randwrite\nbs=64k\nsize=64m\n")
    device = ("--device", "nexus5", "--capacity", "1GB", "--seeds", "1")
    assert_fails(emmclab("lifetime", job, *device), "has no times", "--daily")
    life = emmclab_json("lifetime", job, "--daily", "1GB", *device)
    assert any("without pauses" in note for note in life["notes"]) and life["daily_bytes"] == 1e9


def test_a_trace_without_writes_has_no_lifetime() -> None:
    with pytest.raises(ConfigError, match="writes nothing"):
        load_of_trace(lab.read(lab.bundled()[0], only=["op=read"]))


def test_the_shares_of_journal_and_metadata_are_those_of_the_recorded_roles() -> None:
    mail = lab.read(next(path for path in lab.bundled(annotated=True) if path.stem == "mail"))
    life = estimate_lifetime(Device.preset("nexus5"), load_of_trace(mail, 1e9), seeds=1, trace=mail)
    shares = {row["kind"]: row["written_pct"] for row in mail.journal()["by_kind"]}
    assert (life.journal_pct, life.metadata_pct) == (shares["journal"], shares["home metadata"])
    assert life.journal_pct > 0 and life.metadata_pct > 0


def test_a_comparison_has_the_years_at_the_rate_of_the_runs_with_their_range() -> None:
    trace = next(path for path in lab.bundled() if path.stem == "messages-wal")
    device = ("--devices", "emmc51-cache", "--capacity", "1GB", "--precondition", "random:50", "--wrap-addresses")
    runs = emmclab_json("compare", trace, *device, "--seeds", "2")
    years = [
        run["wear"]["lifetime"]["even_host_bytes"]
        / (run["requests"]["bytes_written"] / run["run"]["simulated_s"])
        / (365.25 * 86_400)
        for run in runs
    ]
    text = emmclab("compare", trace, *device, "--seeds", "2", env={"COLUMNS": "200"}).stdout
    row = next(line for line in text.partition("Total time")[2].splitlines() if line.startswith("emmc51-cache"))
    assert float(row.split()[-1]) == pytest.approx(sum(years) / 2, rel=0.01)

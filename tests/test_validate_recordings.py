"""Compares simulated with recorded times of public recordings, in a table of device, recording and error."""

import re
import shutil
from pathlib import Path

import pytest

import emmclab as lab
from conftest import ROOT, emmclab, emmclab_json, missing
from emmclab.calibration.validation import Model, validate
from emmclab.simulation.device import Device
from pages import follow
from repository import complain

pytestmark = pytest.mark.slow

DEVICES = ("nexus5", "emmc51-cache", "ufs31")
#: For each recording and model: number of compared requests; errors of mean, median, 90th and 99th percentile in
#: percent; share of requests within 25 %. `nexus5` was fitted to the first recording, other devices to none of them.
GOLDEN = {
    "nexus5/log106_Messaging.txt": {
        "calibrated": (2851, 6.3, 32.8, 12.9, -15.0, 77.3),
        "nexus5": (2851, -3.1, -4.5, 0.1, -24.7, 79.6),
        "emmc51-cache": (2851, -92.5, -94.3, -96.0, -88.7, 0.1),
        "ufs31": (2851, -97.4, -97.2, -98.9, -96.7, 0.0),
        "table of medians": (2851, -14.6, -19.0, -4.1, -58.0, 70.6),
    },
    "cases/01-nexus10-mmc-tracepoints/mmc_trace_sample_data.txt": {
        "calibrated": (384, -96.8, -85.0, -98.4, -92.1, 38.3),
        "nexus5": (384, -83.4, -20.4, -92.3, -52.6, 2.3),
        "emmc51-cache": (384, -97.0, -86.3, -98.9, -91.2, 1.3),
        "ufs31": (384, -98.5, -93.4, -99.4, -97.1, 0.8),
        "table of medians": (384, -89.1, -37.0, -94.3, -92.1, 39.1),
    },
    "cases/01-nexus10-mmc-tracepoints/no-header-400.txt": {
        "calibrated": (100, 0.3, 6.0, -0.2, -6.7, 98.0),
        "nexus5": (100, 38.6, 44.5, 33.0, 24.4, 8.0),
        "emmc51-cache": (100, -37.4, -35.8, -36.3, -40.4, 0.0),
        "ufs31": (100, -82.4, -82.7, -84.3, -85.3, 0.0),
        "table of medians": (100, -1.4, 4.8, -4.5, -10.7, 94.0),
    },
    "cases/12-blkparse-redhat-dmcrypt-nvme/nvme0n1.blktrace.txt": {
        "calibrated": (69, -84.8, 4.0, -51.1, -97.8, 27.5),
        "nexus5": (69, 156.9, 2461.8, 646.5, -48.6, 0.0),
        "emmc51-cache": (69, -74.0, 272.3, -45.2, -94.7, 20.3),
        "ufs31": (69, -75.1, -6.8, -18.3, -96.3, 10.1),
        "table of medians": (69, 8.0, -76.2, -50.9, 0.1, 44.9),
    },
    "cases/13-blktrace-8cpu-binary/keks.blktrace.0": {
        "calibrated": (587, -2.9, -9.9, 63.4, -35.6, 59.5),
        "nexus5": (587, 5930.9, 13006.4, 12695.7, 2055.5, 0.0),
        "emmc51-cache": (587, 38.7, 224.0, 155.2, -54.4, 3.7),
        "ufs31": (587, -77.9, -61.6, -82.3, -82.8, 6.6),
        "table of medians": (587, -47.3, -10.0, -61.7, -39.4, 53.8),
    },
    "cases/21-msr-hm0-sample/msr-cambridge1-sample.csv": {
        "nexus5": (499, -40.6, 75.3, -57.6, -65.6, 12.4),
        "emmc51-cache": (499, -82.3, -50.0, -87.1, -88.6, 13.4),
        "ufs31": (499, -94.8, -79.7, -97.8, -98.5, 5.2),
        "calibrated": (499, 771.3, 2840.3, 436.7, 390.5, 8.0),
        "table of medians": (499, 203.1, 1272.4, 4.6, -47.5, 15.6),
    },
    "real/files/pixel4-swapin.blkparse.txt.gz": {
        "calibrated": (7053, 5.0, -10.1, -31.2, 3.5, 85.9),
        "nexus5": (7053, 488.8, 147.7, 1278.7, 1304.1, 0.2),
        "emmc51-cache": (7053, 30.9, -30.1, 98.8, 235.8, 27.0),
        "ufs31": (7053, -71.9, -42.5, -56.0, -95.2, 0.2),
        "table of medians": (7053, -54.6, -9.1, -30.5, -93.7, 86.0),
    },
}
#: Devices on which a recording is calibrated, because it does not determine interface and flash.
BASES = {"real/files/pixel4-swapin.blkparse.txt.gz": "ufs22"}


def _stored(path: Path) -> Path:
    """Return the path of a recording or folder, which must be stored on this machine."""
    if not path.exists():
        missing(str(path), f"put the folder `{path.parent.name}` beside that of EMMCLAB_TRACES")
    return path


@pytest.mark.parametrize("name", GOLDEN)
def test_a_real_recording_has_the_errors_that_it_had(name: str, shared_traces: Path) -> None:
    path = _stored(shared_traces.parent / name if name.startswith(("cases", "real")) else shared_traces / name)
    base = Device.preset(BASES[name]) if name in BASES else None
    devices = [Device.preset(device) for device in DEVICES]
    validation = validate(lab.read(path), devices, base=base, wrap_addresses=True)
    rows = {}
    for model in validation.models:
        response = model.judgement.response
        errors = (round(error or 0.0, 1) for error in response.error)
        rows[model.name] = (response.recorded.requests, *errors, round(response.within_pct[1], 1))
    assert rows == GOLDEN[name]


def test_parts_of_a_recording_that_stand_for_the_whole_are_judged_once(shared_traces: Path) -> None:
    folder = _stored(shared_traces.parent / "cases" / "13-blktrace-8cpu-binary")
    validation = emmclab_json("validate", *sorted(folder.glob("keks.blktrace.*")))
    assert len(validation["recordings"]) == 1


def test_recordings_without_completions_or_of_zones_or_too_short_are_refused_by_the_reason(shared_traces: Path) -> None:
    cases = _stored(shared_traces.parent / "cases")
    reasons = {
        "15-blkparse-completions-only/blk_data.txt": "none of its requests has a completion",
        "43-blktrace-version-8/zoned.blktrace.0": "zones",
        "11-biosnoop/plain.txt": "several devices|3 devices",
        "02-kdab-emmc-270ms/one-line.txt": "at least 100",
        "29-trace-dat-2016-android/trace.dat.gz": "the trace contains no request",
    }
    for name, reason in reasons.items():
        done = emmclab("validate", cases / name)
        assert done.returncode == 2, name
        assert any(word in done.stderr for word in reason.split("|")), done.stderr


def test_a_recording_of_completions_shows_the_stages_of_sleep_of_a_phone(shared_traces: Path) -> None:
    path = _stored(shared_traces.parent / "real" / "files" / "pixel4-swapin.blkparse.txt.gz")
    calibration = lab.calibrate(path, base=Device.preset("ufs22"))
    first, second = calibration.stages
    assert 500 < first.after_us < 2_000 and 400 < first.median_us < 600 and first.requests > 100
    assert 20_000 < second.after_us < 100_000 and 10_000 < second.median_us < 14_000 and second.requests > 50
    assert "10849 of 14111 requests found nothing unfinished" in calibration.warnings[0]
    # The preset was fitted to what it is judged on: this tests the mechanism of the device, not the fit.
    device, _ = validate(lab.read(path), [Device.from_toml(calibration.toml)], base=Device.preset("ufs31")).models[1:]
    for group in device.judgement.groups["idle"][2:]:
        assert group.within_pct[1] > 80, group


def test_the_guide_shows_what_the_commands_print(shared_traces: Path, tmp_path: Path) -> None:
    shutil.copy(shared_traces / "nexus5" / "log106_Messaging.txt", tmp_path)
    complain(follow(ROOT / "docs/guides/validate.md", tmp_path), "correct the page, or the command")


def test_the_table_of_the_guide_has_the_errors_of_the_recordings() -> None:
    rows = re.findall(
        r"^\| .+ \| ([\d,]+) \| (\S+) %, (\S+) %, (\S+) % \|",
        (ROOT / "docs/guides/validate.md").read_text(),
        re.MULTILINE,
    )
    calibrated = [models["calibrated"] for models in GOLDEN.values() if "calibrated" in models]
    rows_of_guide = [(int(count.replace(",", "")), *map(float, figures)) for count, *figures in rows]
    assert rows_of_guide == [(count, mean, p99, within) for count, mean, _, _, p99, within in calibrated]


def test_a_fit_with_more_reads_meets_reads_and_the_queue_meets_queued_requests(shared_traces: Path) -> None:
    """The causes in the guide for two errors of calibrated devices are checked, each by removing the cause."""
    messaging = lab.read(shared_traces / "nexus5" / "log106_Messaging.txt")
    all_reads = Device.from_toml(lab.calibrate(messaging, name="whole")["toml"])
    half, all_of_it, _ = validate(messaging, [all_reads]).models
    assert _error(half, "operation", "read") > 50 and abs(_error(all_of_it, "operation", "read")) < 5
    path = _stored(shared_traces.parent / "cases" / "12-blkparse-redhat-dmcrypt-nvme" / "nvme0n1.blktrace.txt")
    validation = validate(lab.read(path))
    assert validation.calibration is not None and validation.calibration["queue_depth"] == 4
    device = Device.from_toml(validation.calibration["toml"])
    single = device.set({"controller.queue_depth": 1, "name": '"single"'})
    queued, single_model, _ = validate(lab.read(path), [single]).models
    for group in ("2", "3 - 4", "5 - 8"):
        assert _error(single_model, "queue", group) > 500 and abs(_error(queued, "queue", group)) < 140


def _error(model: Model, by: str, label: str) -> float:
    """Return the error of the median of a group, in percent."""
    (group,) = [group for group in model.judgement.groups[by] if group.label == label]
    return group.error.median_pct or 0.0

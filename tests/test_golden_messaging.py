"""The Messaging trace of the IISWC 2015 paper has the paper's rows; eight phone traces fit on a page."""

from pathlib import Path

import pytest

from conftest import emmclab, emmclab_json, emmclab_ok


@pytest.fixture(scope="module")
def messaging(shared_traces: Path) -> Path:
    return shared_traces / "nexus5" / "log106_Messaging.txt"


def test_messaging_in_words_stands_above_the_published_row(messaging: Path) -> None:
    lines = emmclab("profile", messaging).stdout.splitlines()
    rows = [number for number, line in enumerate(lines) if line.startswith("log106_Messaging ")]
    size, timing = rows[1], rows[2]
    assert lines[size].split()[1:] == ["63,668", "5,702", "128", "11.17", "23.25", "10.83", "97.30", "94.38"]
    assert lines[size + 1].split() == ["published", "63,668", "5,702", "128", "11", "23", "10.5", "97.3", "94.38"]
    assert lines[timing].split()[4:] == ["86.39", "1.68", "1.88", "28.87", "50.81"]
    assert lines[timing + 1].split()[4:] == ["86", "1.68", "1.88", "28.85", "50.82"]


def test_eight_phone_traces_on_one_page(shared_traces: Path, tmp_path: Path) -> None:
    traces = sorted((shared_traces / "pixel6a").glob("*.csv.gz"))
    assert len(traces) == 8
    page = tmp_path / "pixel.html"
    emmclab_ok("profile", *traces, "--compare", "--html", page)
    text = page.read_text()
    assert all(path.name.removesuffix(".csv.gz") in text for path in traces)
    assert len(text) < 3_000_000


@pytest.mark.slow
def test_advice_for_messaging_is_for_the_state_that_the_phone_was_recorded_in(messaging: Path) -> None:
    found = emmclab_json("advise", messaging, "--device", "nexus5")
    state = found["state"]
    assert state["chosen"] == "recorded" and state["meets"]
    # A device that was used for a year is far slower than the recorded one.
    errors = {one["precondition"]: one["error_pct"] for one in state["tried"]}
    assert abs(errors[state["precondition"]]) < 5 < 10 < errors["used:1y"]


def test_a_device_that_was_fitted_to_a_trace_says_so_beside_their_agreement(messaging: Path) -> None:
    shown = emmclab("simulate", messaging, "--device", "nexus5").stdout
    assert "nexus5 was fitted to this trace" in shown
    assert "2 of 154 reads reach it" in shown
    assert "fitted to this trace" not in emmclab("simulate", messaging, "--device", "sdcard").stdout

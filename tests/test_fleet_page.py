"""The pages of one fleet and of two: the answer first, every chart drawn, no claims without enough data."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

import emmclab as package
from conftest import biotracer, emmclab, emmclab_ok
from emmclab.fleet.summary import ComparisonFields
from emmclab.fleet.table import row_of
from emmclab.pages.fleet import effects
from emmclab.pages.theme import VERDICT_COLOURS
from fleets import make

pytestmark = pytest.mark.slow


def slower(text: str, factor: float) -> str:
    """Return the same trace with `factor` times the time from issue to completion."""
    lines = []
    for line in text.splitlines():
        *rest, issue, complete = line.split("\t\t")
        late = float(issue.partition(".")[2]) / 1e9, float(complete.partition(".")[2]) / 1e9
        taken_s = (late[1] - late[0]) % 1 * factor
        whole, _, part = issue.partition(".")
        end_us = int(whole) * 10**6 + int(part[:6]) + round(taken_s * 1e6)
        lines.append("\t\t".join([*rest, issue, f"{end_us // 10**6}.{end_us % 10**6:06d}000"]))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of a fleet in groups (`one`), of two different fleets (`two`), and of two small ones (`few`)."""
    place = tmp_path_factory.mktemp("pages")
    make(place / "before", 24)
    (place / "before/notes.md").write_text("Phones\n")
    far = place / "before/model=N5/build=B1/far.txt"
    far.write_text(slower(biotracer(80), 40))
    for path in sorted((place / "before").rglob("*.txt")):
        target = place / "after" / path.relative_to(place / "before")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(slower(path.read_text(), 1.6))
    for name in ("few-before", "few-after"):
        make(place / name, 3)
    for words in (
        ("before", "--by", "model,build", "--html", "one.html"),
        ("before", "--against", "after", "--html", "two.html"),
        ("few-before", "--against", "few-after", "--html", "few.html"),
    ):
        done = emmclab("fleet", *words, cwd=place)
        assert done.returncode == (0 if "few-before" in words else 1), done.stderr
    return place


def test_a_slower_fleet_is_told_from_a_faster_one_and_what_is_the_same_is_not(pages: Path) -> None:
    done = emmclab("fleet", "before", "--against", "after", "--json", cwd=pages)
    found = json.loads(done.stdout)
    comparison = {name: found[name] for name in ComparisonFields.__annotations__}
    assert msgspec.convert(comparison, ComparisonFields) == comparison
    verdicts = {one["figure"]: one["verdict"] for one in found["differences"]}
    assert verdicts["mean_response_ms"] == verdicts["mean_service_ms"] == "higher"
    for same in ("mean_read_kb", "mean_write_kb", "write_requests_pct", "spatial_locality_pct"):
        assert verdicts[same] == "no difference shown"
    row = next(one for one in found["differences"] if one["figure"] == "mean_response_ms")
    assert row["corrected_p"] >= row["p"] > 0 and row["delta"] > 0
    assert found["tests"] == 14
    assert verdicts["requests"] == verdicts["write_data_kb"] == "no difference shown"
    assert verdicts["fsyncs"] == "not recorded"
    assert found["headline"].startswith("after has a higher mean response than before: ")
    assert found["headline"] in " ".join((pages / "two.html").read_text().replace("\u00a0", " ").split()) or (
        found["headline"] in (pages / "two.html").read_text()
    )


def test_too_few_recordings_are_said_with_p_and_the_number_that_is_needed(pages: Path) -> None:
    done = emmclab("fleet", "few-before", "--against", "few-after", "--json", cwd=pages)
    found = json.loads(done.stdout)
    known = [one for one in found["differences"] if one["verdict"] != "not recorded"]
    few = [one for one in known if one["verdict"] == "too few recordings"]
    assert all(0 < one["p"] <= 1 and one["corrected_p"] is None for one in known)
    assert few and {one["needed"] for one in few} == {6}
    # If all recordings have the same value, no number of them would show a difference.
    equal = [one for one in known if one not in few]
    assert {(one["verdict"], one["p"], one["needed"]) for one in equal} <= {("no difference shown", 1.0, None)}
    assert found["headline"].startswith("Too few recordings to tell few-before from few-after: 3 and 3")
    assert "fewer than 6 of each" in found["headline"]
    tiles = (pages / "few.html").read_text().partition("</dl>")[0]
    assert "none is shown to differ" in tiles and "Cliff" not in tiles
    shown = emmclab("fleet", "few-before", "--against", "few-after", cwd=pages).stdout
    heads = [line for line in shown.splitlines() if line.startswith("Figure")]
    assert "Verdict" in heads[0] and heads[-1].split()[-1] == "Needed"
    first = next(line for line in shown.splitlines() if line.startswith("Mean response"))
    assert "too few recordings " in first, "a verdict is one line in 80 columns"


def test_what_is_not_told_apart_is_grey_and_never_the_colour_of_a_verdict() -> None:
    rows = [{"trace": "b", "figure": "Requests", "delta": 0.1, "verdict": "no difference shown"}]
    scale = effects(rows).to_dict()["encoding"]["color"]["scale"]
    assert scale["range"] == [VERDICT_COLOURS["no difference shown"]]
    for name in ("no difference shown", "too few recordings"):
        parts = [int(VERDICT_COLOURS[name][place : place + 2], 16) for place in (1, 3, 5)]
        assert max(parts) - min(parts) < 30, "grey"


def test_fsyncs_of_a_recording_are_among_the_compared_figures() -> None:
    path = Path(package.bundled()[2])
    calls = sum(one["calls"] for one in json.loads(package.read(path).header["activity"] or "{}")["syncs"])
    assert row_of(path, path.name, {})["fsyncs"] == calls > 0


def test_the_recording_that_stands_apart_and_the_file_that_was_refused_are_named(pages: Path) -> None:
    done = emmclab("fleet", "before", "--json", cwd=pages)
    found = json.loads(done.stdout)
    assert "model=N5/build=B1/far.txt" in {
        one["path"] for one in found["outliers"] if one["figure"] == "mean_service_ms"
    }
    page = (pages / "one.html").read_text()
    assert "notes.md" in page and "could not be read and is in no figure" in page


def test_the_same_table_gives_the_same_page(pages: Path, tmp_path: Path) -> None:
    shutil.copy(pages / "before.fleet.parquet", tmp_path / "before.fleet.parquet")
    emmclab_ok("fleet", "before.fleet.parquet", "--by", "model,build", "--html", "again.html", cwd=tmp_path)
    assert (tmp_path / "again.html").read_bytes() == (pages / "one.html").read_bytes()


def test_fleets_that_were_read_differently_are_compared_with_a_caution(pages: Path, tmp_path: Path) -> None:
    done = emmclab("fleet", "before", "-o", tmp_path / "writes.parquet", "--only", "op=write", cwd=pages)
    assert done.returncode == 1, done.stderr
    words = ("before.fleet.parquet", "--against", tmp_path / "writes.parquet")
    done = emmclab("fleet", *words, "--json", "--html", tmp_path / "page.html", cwd=pages)
    found = json.loads(done.stdout)
    assert found["cautions"] == ["The two fleets were read with different options."]
    assert found["cautions"][0] in (tmp_path / "page.html").read_text()
    verdicts = {one["figure"]: one["verdict"] for one in found["differences"]}
    assert verdicts["mean_read_kb"] == "not recorded"
    assert found["tests"] == 13

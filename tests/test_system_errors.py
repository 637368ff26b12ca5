"""Errors of the operating system are reported with the file and a hint by every command."""

import os
from pathlib import Path

import pytest

from conftest import assert_refused, emmclab, emmclab_ok
from emmclab.errors import FormatError, InputError
from emmclab.runtime.files import read_text

LATIN_1 = "name = 'Küche'\n".encode("latin-1")


@pytest.fixture
def latin(tmp_path: Path) -> Path:
    path = tmp_path / "latin.toml"
    path.write_bytes(LATIN_1)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "{latin}"],
        ["explain", "{latin}"],
        ["simulate", "{trace}", "--device", "{latin}"],
        ["synth", "{latin}", "out.parquet"],
        ["profile", "{trace}", "--against", "{latin}"],
        ["probe", "{latin}"],
    ],
    ids=lambda words: words[0],
)
def test_a_text_that_is_no_utf8(arguments: list[str], latin: Path, trace: Path) -> None:
    words = (word.format(latin=latin, trace=trace) for word in arguments)
    assert_refused(emmclab(*words, cwd=latin.parent), "latin.toml", "UTF-8")
    assert not (latin.parent / "out.parquet").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "advil12", "--results", "{file}"],
        ["claims", "--results", "{file}"],
        ["reproduce", "iiswc15", "--results", "{file}"],
        ["profile", "{trace}", "--figures", "{file}"],
        ["profile", "{trace}", "--html", "{file}/page.html"],
        ["convert", "{trace}", "{file}/out.csv"],
        ["simulate", "{trace}", "--images", "{file}", "--precondition", "random:1", "--wrap-addresses"],
    ],
    ids=lambda words: f"{words[0]} {words[-2]}",
)
def test_a_file_where_a_folder_is_expected(arguments: list[str], trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("as it was")
    done = emmclab(*(word.format(file=file, trace=trace) for word in arguments), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    said = done.stderr.splitlines()
    assert said[-2].startswith(f"error: {file}"), done.stderr
    assert said[-1].startswith("hint: "), done.stderr
    assert file.read_text() == "as it was"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "arguments",
    [["profile", "{trace}", "--html", "{link}"], ["convert", "{trace}", "{link}", "--to", "csv"]],
    ids=lambda words: words[0],
)
def test_an_output_through_a_link_leaves_the_link(arguments: list[str], trace: Path, tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("as it was")
    link.symlink_to(file)
    emmclab_ok(*(word.format(link=link, trace=trace) for word in arguments))
    assert link.is_symlink()
    assert len(file.read_text()) > len("as it was")


@pytest.mark.parametrize(
    "arguments",
    [["profile", "{trace}", "--html", "{folder}"], ["convert", "{trace}", "{folder}", "--to", "csv"]],
    ids=lambda words: words[0],
)
def test_a_folder_where_a_file_is_expected(arguments: list[str], trace: Path, tmp_path: Path) -> None:
    done = emmclab(*(word.format(folder=tmp_path, trace=trace) for word in arguments))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("hint: name a file"), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_too_long(trace: Path, tmp_path: Path) -> None:
    for arguments in (["head", "x" * 300], ["convert", trace, tmp_path / ("x" * 300 + ".csv")]):
        assert_refused(emmclab(*arguments), "shorter name")
    assert list(tmp_path.iterdir()) == []


def test_every_refusal_has_a_hint(tmp_path: Path) -> None:
    for number in (*range(1, 40), 95, 122):
        refusal = InputError.of(OSError(number, os.strerror(number), "some.file"))
        assert refusal.hint
        assert str(refusal).startswith("some.file: ")
    with pytest.raises(InputError, match="file not found") as missing:
        read_text(tmp_path / "none.toml", "run it first")
    assert missing.value.hint == "run it first"
    with pytest.raises(FormatError, match="byte 9: this is not UTF-8"):
        (tmp_path / "latin.toml").write_bytes(LATIN_1)
        read_text(tmp_path / "latin.toml")

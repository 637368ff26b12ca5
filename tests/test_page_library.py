"""The script of the pages is stored in the user's cache folder, and a damaged copy is never used."""

from pathlib import Path

import pytest

from conftest import emmclab_ok
from emmclab.pages import chart_files as kept


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "caches"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def test_the_script_is_bundled_once_and_again_where_the_copy_is_damaged(
    caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def bundle(*_words: str) -> str:
        made.append(1)
        return "script\r\nof pages"

    monkeypatch.setattr(kept, "convert", bundle)
    assert [kept.library(), kept.library()] == ["script\r\nof pages"] * 2 and len(made) == 1
    (file,) = (caches / "emmclab").iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], whole[:30], b"\xff" + whole, whole + b"alert(1)"):
        file.write_bytes(damaged)
        assert kept.library() == "script\r\nof pages"
        assert file.read_bytes() == whole
    assert len(made) == 6


def test_a_page_is_written_where_nothing_can_be_kept(tmp_path: Path, trace: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    page = tmp_path / "page.html"
    emmclab_ok("profile", trace, "--html", page, env={"XDG_CACHE_HOME": str(blocked)})
    assert "window.vegaEmbed" in page.read_text()

"""The types and tables that are written from the core's schemas are current."""

import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from generate_types import generated


def test_generated_files_are_current() -> None:
    assert [path.name for path, text in generated().items() if path.read_text() != text] == []

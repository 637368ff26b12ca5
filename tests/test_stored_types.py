"""The types of a study's stored data match the files of its results."""

from pathlib import Path

import msgspec

from conftest import emmclab
from emmclab.runtime.result_storage import Folder
from emmclab.studies.store import Store
from emmclab.studies.stored_types import Entry, Index
from emmclab.studies.verdicts import Ranking


def test_index_and_cells_have_the_typed_fields_and_no_other(trace: Path, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    # The workload does not fit on the small device, so that its cells fail.
    study.write_text(
        f'name = "small"\ninputs = ["{trace}", "Idle"]\nseeds = [1, 2]\n[[grid]]\nname = "g"\n'
        'devices = ["nexus5"]\nmodes = ["open"]\n[grid.axes]\n"gc.policy" = ["greedy", "fifo"]\n'
        '[[grid]]\nname = "fails"\ndevices = ["small-1gb"]\nmodes = ["open"]\nwrap_addresses = false\n'
    )
    emmclab("run", study, "--results", tmp_path / "results")
    store = Store(Folder(tmp_path / "results" / "small"))
    index = msgspec.json.decode(msgspec.json.encode(store.index()), type=Index)
    assert index == store.index()
    kept = list(store.results())
    entries = [msgspec.json.decode(text, type=Entry) for text in kept]
    assert [msgspec.json.decode(text) for text in kept] == entries
    assert {"failed", "result"} <= {name for entry in entries for name in entry}
    assert {"device" in entry["cell"] for entry in entries} == {False, True}


def test_rankings_have_the_typed_fields_and_no_other(trace: Path, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    study.write_text(
        f'name = "small"\ninputs = ["{trace}"]\n[[grid]]\nname = "g"\ndevices = ["nexus5", "ufs31"]\n'
        'modes = ["open"]\nlayers = ["lfs"]\n'
    )
    emmclab("run", study, "--results", tmp_path / "results")
    done = emmclab("report", study, "--results", tmp_path / "results", "--json", cwd=tmp_path)
    rankings = msgspec.json.decode(done.stdout)["rankings"]
    assert rankings and msgspec.convert(rankings, list[Ranking]) == rankings
    (first, *_) = Store(Folder(tmp_path / "results" / "small")).results()
    kept = msgspec.json.decode(first)
    assert msgspec.convert(kept, Entry) == kept

"""Images of fast commits that Linux does not mount are rejected with a reason."""

import subprocess
import sys
from pathlib import Path

import pytest

from emmclab import _core
from emmclab.errors import EmmclabError

SCRIPT = Path(__file__).parents[1] / "scripts/fast_commit_images.py"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the images that the script creates."""
    folder = tmp_path_factory.mktemp("images")
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], check=True)
    return folder


@pytest.mark.parametrize(
    ("name", "reason"),
    [("full", "fill all of their blocks"), ("torn", "no fast commit is complete"), ("unlinked", "that has no name")],
)
def test_fast_commits_that_linux_does_not_mount_are_refused(images: Path, name: str, reason: str) -> None:
    with pytest.raises(EmmclabError, match=reason):
        _core.read_ext4(str(images / f"{name}.img"), [])


def test_a_whole_fast_commit_is_replayed(images: Path) -> None:
    assert _core.read_ext4(str(images / "mounts.img"), ["/nothing"]) == [None]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", ["mounts", "full", "torn", "unlinked"])
def test_the_kernel_of_this_host_is_as_the_report_says(images: Path, tmp_path: Path, name: str) -> None:
    """A kernel that mounts all images has fixed the faults, and then the replay must mount them, too."""
    image = tmp_path / "image"
    image.write_bytes((images / f"{name}.img").read_bytes())
    done = subprocess.run(["mount", "-o", "loop", str(image), str(tmp_path)], capture_output=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert (done.returncode == 0) == (name == "mounts"), done.stderr

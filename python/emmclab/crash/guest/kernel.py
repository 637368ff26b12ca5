"""A kernel of a Linux distribution: its version, and its modules with their dependencies."""

import lzma
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from emmclab.errors import ConfigError, InputError

#: Header of an x86 kernel (Documentation/arch/x86/boot.rst): the magic word, and the offset of the version.
_MAGIC_AT, _MAGIC, _VERSION_AT, _SETUP = 0x202, b"HdrS", 0x20E, 0x200
#: Modules that every guest needs: for a disk and for channels to the host.
_ALWAYS = ("virtio_pci", "virtio_blk", "virtio_console")
#: Modules of each file system; those that are requested by name at run time come first.
_OF_FILE_SYSTEM = {"vfat": ("nls_cp437", "nls_ascii", "nls_iso8859_1", "nls_utf8", "vfat")}
#: Folders of modules that file systems request by the name of an algorithm.
_ALGORITHMS = ("kernel/crypto", "kernel/lib")
#: How to get a kernel without installing it.
_GET = (
    "for example: apt-get download linux-image-VERSION-amd64; dpkg-deb -x linux-image-*.deb kernel; "
    "then --guest kernel/boot/vmlinuz-VERSION-amd64"
)


@dataclass(frozen=True)
class Kernel:
    """A kernel file and the folder with its modules."""

    file: Path
    version: str
    modules: Path

    @classmethod
    def of(cls, path: str) -> "Kernel":
        """Find the modules of a kernel file: in the folder of its package, else at their installed place.

        Raises:
            ConfigError: it is not a kernel, or the folder with its modules does not exist.
        """
        file = Path(path)
        version = _version(file)
        top = file.absolute().parent.parent
        sought = [top / "lib/modules" / version, top / "usr/lib/modules" / version]
        sought.append(Path("/lib/modules") / version)
        found = next((folder for folder in sought if (folder / "kernel").is_dir()), None)
        if found is None:
            raise _wrong(
                f"{path}: the modules of this kernel ({version}) are not there: "
                f"{', '.join(map(str, dict.fromkeys(sought)))}",
                f"keep kernel and modules in the folders of their package, {_GET}",
            )
        return cls(file, version, found)

    def files_of(self, file_system: str) -> list[Path]:
        """Return the modules that a guest with this file system loads, each after its dependencies.

        Raises:
            ConfigError: the kernel does not support the file system.
        """
        named = {_plain(path.name): path for path in sorted(self.modules.rglob("*.ko*"))}
        built_in = {_plain(Path(line).name) for line in self._lines("modules.builtin")}
        found: dict[Path, None] = {}
        for name in (*_ALWAYS, *_OF_FILE_SYSTEM.get(file_system, (file_system,))):
            if name not in named and name not in built_in and name in (*_ALWAYS, file_system):
                raise _wrong(
                    f"{self.file}: this kernel ({self.version}) has no module {name}",
                    "use a kernel that has it, as Debian's linux-image-amd64; the cloud kernels lack some",
                )
            found |= dict.fromkeys(self._with_needed(name, named))
        return list(found)

    def _with_needed(self, name: str, named: dict[str, Path]) -> Iterator[Path]:
        path = named.get(name)
        if path is None:
            return
        about = _about(contents(path))
        for softly in about.get("softdep", ()):
            for wish in softly.partition("pre:")[2].partition("post:")[0].split():
                other = wish.replace("-", "_") if wish.replace("-", "_") in named else self._algorithm(wish)
                yield from self._with_needed(other, named)
        for needed in ",".join(about.get("depends", ())).split(","):
            yield from self._with_needed(needed.replace("-", "_"), named)
        yield path

    def _algorithm(self, name: str) -> str:
        """Return the name of a module that provides an algorithm; `""` if there is none."""
        for folder in _ALGORITHMS:
            for path in sorted((self.modules / folder).rglob("*.ko*")):
                if {name, f"crypto-{name}"} & {*_about(contents(path)).get("alias", ())}:
                    return _plain(path.name)
        return ""

    def _lines(self, name: str) -> list[str]:
        path = self.modules / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def contents(path: Path) -> bytes:
    """Return the decompressed contents of a module.

    Raises:
        ConfigError: it is compressed with zstd, and no program to decompress it is installed.
    """
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        if shutil.which("zstd") is None:
            raise _wrong(f"{path}: there is no program that unpacks it", "install the Debian package zstd")
        return subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True).stdout
    return data


def _about(module: bytes) -> dict[str, list[str]]:
    """Return the metadata of a module (section .modinfo): `key=value` strings, each terminated by a zero."""
    found: dict[str, list[str]] = {}
    for key in ("depends", "softdep", "alias"):
        for part in _after(module, b"\0" + key.encode() + b"="):
            found.setdefault(key, []).append(part)
    return found


def _after(data: bytes, begin: bytes) -> Iterable[str]:
    at = data.find(begin)
    while at >= 0:
        end = data.index(b"\0", at + len(begin))
        yield data[at + len(begin) : end].decode(errors="replace")
        at = data.find(begin, end)


def _plain(name: str) -> str:
    return name.partition(".ko")[0].replace("-", "_")


def _version(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError.of(error, file, hint=f"name the file of a kernel, {_GET}") from error
    at = int.from_bytes(data[_VERSION_AT : _VERSION_AT + 2], "little") + _SETUP
    words = data[at : at + 256].partition(b"\0")[0].decode(errors="replace").split()
    if data[_MAGIC_AT : _MAGIC_AT + 4] != _MAGIC or not words:
        raise _wrong(f"{file}: not a kernel for x86-64 (bzImage)", f"name a file vmlinuz, {_GET}")
    return words[0]


def _wrong(problem: str, hint: str) -> ConfigError:
    return ConfigError(problem, field="guest", hint=hint)

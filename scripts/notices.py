"""Writes the notices of the crates linked into the core, as their licenses require: `notices.py FILE`.

The crates are those that cargo links for the machine that it runs on.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CORE = "emmclab-python"
#: Pattern of the names of files with licenses and notices; in C libraries they are one folder deeper than in crates.
NOTICE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([.-]|$)", re.IGNORECASE)
DEEPEST = 2
#: Pattern of licenses that are left out: the libraries also offer another license, and their tools are not linked.
NOT_USED = re.compile(r"GNU (LESSER )?GENERAL PUBLIC LICENSE")


def linked() -> list[dict[str, Any]]:
    """Return the packages from registries that are linked into the core, by name and version."""
    (host,) = re.findall(r"^host: (\S+)$", output("rustc", "-vV"), flags=re.MULTILINE)
    words = ("--locked", "--format-version", "1", "--filter-platform", host)
    metadata = json.loads(output("cargo", "metadata", *words))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    package_ids: set[str] = set()
    ahead = [next(key for key, package in packages.items() if package["name"] == CORE)]
    while ahead:
        key = ahead.pop()
        if key in package_ids:
            continue
        package_ids.add(key)
        for needed in nodes[key]["deps"]:
            # Crates that are used only for tests or builds, or that run only in the compiler, are left out.
            links = any(kind["kind"] is None for kind in needed["dep_kinds"])
            kinds = {kind for target in packages[needed["pkg"]]["targets"] for kind in target["kind"]}
            if links and "proc-macro" not in kinds:
                ahead.append(needed["pkg"])
    foreign = [packages[key] for key in package_ids if packages[key]["source"]]
    return sorted(foreign, key=lambda package: (package["name"], package["version"]))


def output(*words: str) -> str:
    """Run a command, which must succeed, and return its output."""
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def texts(package: dict[str, Any]) -> list[str]:
    """Return the licenses and notices of a package."""
    folder = Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.rglob("*") if path.is_file() and NOTICE.match(path.name))
    near = [path for path in files if len(path.relative_to(folder).parts) <= DEEPEST]
    license_texts = [path.read_text(encoding="utf-8", errors="replace").strip() for path in near]
    license_texts = [text for text in license_texts if text and NOT_USED.search(text[:400]) is None]
    if not license_texts and "Apache-2.0" in (package["license"] or ""):
        license_texts = [(ROOT / "LICENSE").read_text(encoding="utf-8").strip()]
    if not license_texts:
        sys.exit(
            f"error: {package['name']} {package['version']} has no license among its files\n"
            "hint: add its text to scripts/notices.py, or use another crate"
        )
    return license_texts


def notices() -> str:
    """Return the list of crates, and each text once with the crates to which it belongs."""
    packages = linked()
    of: dict[str, tuple[str, list[str]]] = {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        for text in texts(package):
            _, names = of.setdefault(" ".join(text.split()), (text, []))
            if name not in names:
                names.append(name)
    lines = [
        "The core of emmclab (emmclab._core) contains these crates, and the standard library of Rust",
        "(MIT OR Apache-2.0).",
        "",
        *(f"{package['name']} {package['version']}: {package['license']}" for package in packages),
    ]
    for text, names in of.values():
        lines += ["", "=" * 100, ", ".join(names), "-" * 100, "", text]
    return "\n".join(lines) + "\n"


def write(path: Path) -> None:
    """Write the notices to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notices(), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: name the file to write to\nhint: notices.py FILE")
    write(Path(sys.argv[1]))

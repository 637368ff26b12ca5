"""The documentation site, which opens from disk: `make docs` writes it to build/docs."""

import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from python_guide import with_views  # noqa: E402

project = "emmclab"
version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
nitpicky = True
#: Types in signatures are those of the code, of which many have no place on the site.
nitpick_ignore_regex = [("py:.*", ".*")]
#: Names in docstrings are between single backquotes.
default_role = "code"
autodoc_member_order = "bysource"
maximum_signature_line_length = 80
highlight_language = "none"
# An option in a sentence keeps its two dashes.
smartquotes = False
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"emmclab {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
# The page of results would fetch each page for its summary, which browsers refuse where pages are files.
html_show_search_summary = False

#: Pages outside this folder that pages link to, by the page that includes them.
INCLUDED = {"../../CONTRIBUTING.md": "../project/contributing.md", "../../DESIGN.md": "../project/design.md"}


def _read(_app: Sphinx, name: str, source: list[str]) -> None:
    """Add what the blocks of the Python guide show; links to included pages become links to what includes them."""
    if name == "guides/python":
        source[0] = with_views(source[0])
    for outside, page in INCLUDED.items():
        source[0] = source[0].replace(f"]({outside}", f"]({page}")


def setup(app: Sphinx) -> None:
    """Connect what reads the sources."""
    app.connect("source-read", _read)

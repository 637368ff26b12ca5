"""Compares the presets with the figures of real devices, and writes the sum into README.

`emmclab reproduce devices` does the same and writes a page. Run this after changes of the model, of a preset, or of
`presets/published/measured_devices.csv`. A slow test compares README with the figures.
"""

import re
import textwrap
from pathlib import Path

from emmclab.calibration.measured_figures import FigureSummary, compare_figures, measured_devices

README = Path(__file__).parents[1] / "README.md"
#: Length of a line of README, characters.
_COLUMNS = 140


def main() -> None:
    """Replace the sentence after the words `real phones, boards and cards:` in its paragraph."""
    summary = FigureSummary.of(compare_figures(measured_devices()))

    def stated(paragraph: re.Match[str]) -> str:
        before, _, after = " ".join(paragraph[0].split()).partition("cards: ")
        text = f"{before}cards: {summary} {after[after.index('([') :]}"
        return textwrap.fill(text, _COLUMNS, break_long_words=False, break_on_hyphens=False)

    paragraph = re.compile(r"^`emmclab reproduce devices`(?:.+\n)*.+", re.MULTILINE)
    text, count = paragraph.subn(stated, README.read_text("utf-8"))
    if count != 1:
        raise SystemExit("README.md: there is no paragraph that begins with `emmclab reproduce devices`")
    README.write_text(text, "utf-8")


if __name__ == "__main__":
    main()

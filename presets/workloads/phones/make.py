"""Fits the workload models of a phone of 2022 to its public traces: `make.py TRACES write|check`.

TRACES is a folder with the `*.csv.gz` of MobileBlockIOTraces (Pixel 6a). `NAME_exec` is an application in
use, `NAME_precond` the writes of its installation. Clock jumps are mended and suspected re-issues are
dropped. `check` says whether the models are what `emmclab fit` makes of the traces today.
"""

import re
import sys
from pathlib import Path

from emmclab import read
from emmclab.traces.workload import fit

MODELS = Path(__file__).parent
#: Model and trace.
TRACES = {
    "Telegram": "telegram_exec",
    "CallOfDuty": "cod_exec",
    "GenshinImpact": "genshin_impact_exec",
    "PUBG": "pubg_exec",
    "TelegramInstall": "telegram_precond",
    "CallOfDutyInstall": "cod_precond",
    "GenshinImpactInstall": "genshin_impact_precond",
    "PUBGInstall": "pubg_precond",
}


def path_of(name: str) -> Path:
    """Return the file of a model: `CallOfDuty` is in `call_of_duty.toml`."""
    return MODELS / f"{re.sub('(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])', '_', name).lower()}.toml"


def model_of(name: str, folder: Path) -> str:
    """Return the text of a model, each list on one line."""
    trace = read(folder / f"{TRACES[name]}.csv.gz", mend_clock=True, drop_reissued=True)
    text = fit(trace, name=name).to_toml()
    ledger = trace.ledger
    source = (
        f'source = "fitted to {TRACES[name]} of MobileBlockIOTraces (Pixel 6a): '
        f"{ledger['mended_jumps']:,} clock jumps mended, "
        f'{ledger["dropped_reissues"]:,} suspected re-issues dropped"'
    )
    return _on_one_line(text.replace('source = "fitted to a trace"', source, 1))


def _on_one_line(text: str) -> str:
    """Write the rows of the load curve, which `fit` puts on lines of their own, on one line."""
    head, opening, rows = text.partition("curve = [")
    return head + opening + ", ".join(row.strip(" ,") for row in rows.splitlines()[1:-1]) + "]\n"


def main() -> int:
    """Write or check all models."""
    folder, action = Path(sys.argv[1]), sys.argv[2]
    different = []
    for name in TRACES:
        path = path_of(name)
        text = model_of(name, folder)
        if action == "write":
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            different.append(path.name)
    if different:
        print(f"not what the traces give: {', '.join(different)}")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())

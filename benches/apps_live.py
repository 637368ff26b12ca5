"""The host model against real runs: applications on this machine's kernel and on the model, on three devices.

Needs root, FUSE and loop devices, and an otherwise idle machine, as the device's clock is real. Programs that
would take longer than a minute on a device are left out there.

    python benches/apps_live.py [--devices transcend-c2,sandisk-c4,microsd-class10] [APP...]
"""

from __future__ import annotations

import argparse

from emmclab.apps import applications, run_application
from emmclab.apps_live import LIVE_HOST, agreement, run_live

#: Devices whose writes take a millisecond and more.
_DEVICES = "transcend-c2,sandisk-c4,microsd-class10"
#: The longest run, in s.
_LONGEST_S = 60
#: Differences that the model is held to, in %.
_REQUESTS_PCT, _RUNTIME_PCT = 10, 15
_NETWORK = "wifi"


def main() -> None:
    """Print a row for each application and device."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("names", nargs="*", metavar="APP")
    asked.add_argument("--devices", default=_DEVICES)
    words = asked.parse_args()
    names = words.names or [row["name"] for row in applications()]
    heads = ("runtime, s", "reads", "writes", "written, MB")
    print(f"{'':30}" + "".join(f"{head:>18}{'':10}" for head in heads))
    inside = total = 0
    for device in words.devices.split(","):
        for name in names:
            model = run_application(name, device, network=_NETWORK, host=LIVE_HOST)
            if model.runtime_s > _LONGEST_S:
                print(f"{name:12}{device:18}left out: {model.runtime_s:,.0f} s in the model")
                continue
            rows = {row["name"]: row for row in agreement(run_live(name, device, network=_NETWORK), model)}
            text = f"{name:12}{device:18}"
            for key, digits in (("runtime", 2), ("reads", 0), ("writes", 0), ("written", 2)):
                row = rows[key]
                values = " ".join(f"{row[side]:8,.{digits}f}" for side in ("live", "model"))
                text += f"{values} {row['difference_pct'] or 0:+6.1f} %  "
            print(text, flush=True)
            total += 1
            inside += (
                abs(rows["runtime"]["difference_pct"]) <= _RUNTIME_PCT
                and abs(rows["writes"]["difference_pct"]) <= _REQUESTS_PCT
                and abs(rows["written"]["difference_pct"]) <= _REQUESTS_PCT
            )
    bounds = f"{_RUNTIME_PCT} % of the runtime and {_REQUESTS_PCT} % of writes and their bytes"
    print(f"{inside} of {total} within {bounds}")


if __name__ == "__main__":
    main()

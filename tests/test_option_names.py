"""Commands name the same thing in the same way: options of devices, columns of percentiles."""

from __future__ import annotations

from emmclab.cli import application
from emmclab.cli.command_groups import walk_commands
from emmclab.studies.tables import rows_of


def test_every_command_with_a_device_takes_both_spellings_of_the_option() -> None:
    found = {}
    for name, command in walk_commands(application()):
        for parameter in command.params:
            # `record` and `top` choose block devices of a machine, not a simulated device.
            if "device" in (parameter.name or "") and name not in ("record", "top"):
                spelled = [one for one in parameter.opts if one in ("--device", "--devices")]
                if spelled:
                    found[name] = spelled
    assert {*found} >= {"simulate", "compare", "apps run", "apps compare", "advise", "crash"}
    assert all(spelled == ["--device", "--devices"] for spelled in found.values()), found


def test_chosen_percentiles_have_columns_named_as_the_usual_ones() -> None:
    result = {
        "response": {"p99_ms": 2.0, "read": {"p99_ms": 3.0}},
        "percentiles": [
            {"op": op, "percentile": percentile, "response_ms": 1.0}
            for op in ("all", "read")
            for percentile in (99.0, 99.99)
        ],
    }
    cell = {"grid": "g", "settings": {}, "options": {"mode": "open"}}
    ((_, row),) = rows_of({"cell": cell, "result": result})
    usual = {"response_p99_ms", "response_read_p99_ms"}
    assert {name for name in row if "p99" in name} == usual | {
        "response_p99_99_ms",
        "response_read_p99_99_ms",
    }

"""A small application in closed loop, and a study with a search, as texts."""

SMALL = """
name = "small"
about = "Saves a note ten times"
source = "made for a test"
user_waits_for = "ui"

[[database]]
name = "notes.db"
partition = "data"
size = "100KB"

[[thread]]
name = "ui"
steps = [
    { repeat = { times = 10, steps = [
        { cpu = { ms = 2 } },
        { network = { size = "10KB" } },
        { transaction = { database = "notes.db", pages = 2 } },
    ] } },
]
"""


#: The devices are new, so that no preconditioning delays runs.
NEW = ("--precondition", "none")

#: A search with a bound on the mean response time, ms.
SEARCH = """
name = "tuned"
inputs = ["{input}"]
[[grid]]
name = "gc"
devices = ["small-1gb"]
modes = ["open"]
precondition = "random:90"
wrap_addresses = true
[grid.set]
"geometry.block_groups.0.blocks" = 64

[search]
[[search.setting]]
name = "gc.policy"
choices = ["greedy", "fifo"]
[[search.setting]]
name = "capacity.over_provisioning_pct"
low = 5.0
high = 25.0
[[search.setting]]
name = "gc.high_watermark"
low = 2
high = 12
[[search.constraint]]
metric = "mean_response_ms"
most = {most}
"""

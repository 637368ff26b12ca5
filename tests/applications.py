"""A small application in closed loop."""

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

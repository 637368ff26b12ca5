"""Findings: our own results that are in none of the papers, each with question, method, figure and limits.

`findings.toml` declares them; a function of `findings.py` or `phones.py` answers each from the results of a study.
"""

#: Name under which `emmclab reproduce` reproduces the findings.
NAME = "findings"

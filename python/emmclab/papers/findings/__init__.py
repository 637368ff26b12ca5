"""Findings: results that no paper of the list has, each with question, method, figure and limits.

`findings.toml` declares them; `measured` has the function that answers each from the results of a study.
"""

#: What `emmclab reproduce` calls the findings.
NAME = "findings"

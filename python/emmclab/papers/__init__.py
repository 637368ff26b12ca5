"""The reproduced papers: one folder for each, found by its `paper.toml`.

A folder contains `paper.toml` (title, authors, state, and the grids of its studies whose results no claim uses),
`claims.toml` (every claim with its published figures and the rule that judges it), the studies as `NAME.study.toml`,
the modules that measure the claims, and for each study `NAME_page.py`. A new paper requires no change outside its
folder.
"""

"""The reproduced papers: one folder for each, found by its `paper.toml`.

`paper.toml` contains title, authors and state of the paper, and the parts of its studies that no claim uses.
`claims.toml` contains the claims, with their published figures and the rules that check them. The other files of a
folder are the studies (`NAME.study.toml`), a page for each study (`NAME_page.py`), and the modules that measure the
claims. A new paper requires no change outside its folder.
"""

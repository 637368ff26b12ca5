"""The HTML pages and the figures: one module per page, which fills a template of this folder.

A page is one file that needs no network. `assemble` fills the templates and `first_screen` describes what
each page begins with; `plots` draws the figures.
"""

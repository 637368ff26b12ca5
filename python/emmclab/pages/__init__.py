"""The HTML pages and their charts: one module per page, which fills a template of this folder.

A page is one file that needs no network. `assemble` fills the templates and describes the beginning of each page, and
`plots` draws the charts.
"""

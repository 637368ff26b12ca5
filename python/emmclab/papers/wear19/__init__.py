"""Wear of phones by writing (Zhang et al., HotOS 2017 and MobiSys 2019): study, measures of claims and page."""

"""Comparisons of results: with the recording, between seeds, between devices, and between two configurations.

This package may import `calibration` (for notes on how devices were fitted), `simulation` and those
below them.
"""

"""Comparisons of results: with the recording, between seeds, between devices, and between two configurations.

A comparison also states whether the difference is more than chance, and whether the presets were fitted to
sources that can be compared.
"""

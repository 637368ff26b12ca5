"""Simulated devices: their settings and layers, runs of traces on them, and the results of such runs.

A device is created from a preset or from settings, may be preconditioned, and serves traces. A result contains
its provenance; a stored result can be simulated again.
"""

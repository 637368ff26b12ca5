"""Traces: reading, converting and making them, and what one pass over a trace finds (its profile).

This package knows only traces, not the devices that serve them.
"""

"""Traces: reading, converting and making them, and what one pass over a trace finds (its profile).

This room knows traces only, not the devices that may serve them. It may import `runtime`.
"""

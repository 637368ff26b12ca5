"""Devices made from measurements: presets fitted to traces or made from registers, and their validation.

This package may import `simulation`, `traces` and `runtime`.
"""

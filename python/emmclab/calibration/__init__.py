"""Devices from measurements: presets fitted to traces or derived from registers, and their validation.

A fitted preset states the error of its fit;
`validation` compares it with a part of the recording that the fit did not use.
"""

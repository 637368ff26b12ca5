"""Reads, converts, generates and profiles traces.

This package contains no model of a device.
"""

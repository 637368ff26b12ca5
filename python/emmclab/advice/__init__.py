"""Advice on the design of a device: the gain and the cost of each option under a trace, and its lifetime.

This package may import `comparison`, `simulation` and those below them.
"""

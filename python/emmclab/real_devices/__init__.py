"""Tests of real devices: whether acknowledged data survives a power cut, and how the flash is organised.

Both tests also run on simulated devices, for which the right results are known.
"""

"""Tests of real devices: whether they keep acknowledged data, and how their flash is organised.

Both tests also run on simulated devices, whose answers are known.
"""

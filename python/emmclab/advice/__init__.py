"""Advice on the design of a device: the gain and the cost of each option under a trace, and its lifetime.

The state of the device, the options and the modes of the journal are each simulated and ranked.
"""

"""Advice on a device: the gain and the cost of each design option under a trace, and how long it lasts.

The state of the device, the options and the modes of the journal are each simulated and ranked. A lifetime is the wear
of a load, divided into the erase limits of each kind of block.
"""

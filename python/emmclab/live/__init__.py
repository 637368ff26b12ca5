"""Live devices: a simulated device that is served as a block device of this machine, and its control socket.

The device has contents, a clock and power; `control` cuts the power or changes settings during operation.
"""

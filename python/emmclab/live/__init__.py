"""Live devices: a simulated device that is served as a block device of this machine, and its control socket.

This room may import `simulation`, `traces` and `runtime`.
"""

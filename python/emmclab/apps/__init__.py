"""Applications: programs that wait for a simulated or served device, and ways to make their storage faster.

`closed_loop` runs a program on the model of the host, and `processes` runs it as real processes on a served device.
"""

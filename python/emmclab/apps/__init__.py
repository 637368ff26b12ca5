"""Applications: programs that wait for a simulated or served device, and ways to make their storage faster.

`closed_loop` simulates both the program and the computer on which it runs; `processes` runs the program as real
processes on a served device.
"""

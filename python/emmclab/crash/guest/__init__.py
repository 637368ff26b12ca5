"""Guests: another kernel, in QEMU, on which workloads are recorded and states are mounted.

A guest has one disk. `agent` runs in it, as its only process; `machine` starts it and sends requests to the
agent. Kernel and modules come from a Linux distribution; Python comes from this machine.
"""

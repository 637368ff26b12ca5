"""Guests: virtual machines in QEMU with another kernel, on which workloads run and crash states are mounted.

A guest has one disk. `agent` is the only process in it; `machine` starts the guest and sends requests to the agent.
Kernel and modules come from a Linux distribution; Python comes from this machine.
"""

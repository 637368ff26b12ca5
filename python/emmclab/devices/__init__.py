"""Simulated devices: their settings and layers, runs of traces on them, and the results of such runs.

Presets are fitted here (`calibration`), compared with real devices (`probe`) and improved (`advise`). This
package may import `traces` and `runtime`.
"""

"""Tests on a real device whether acknowledged data survives a power cut: writer, log of syncs, and check."""

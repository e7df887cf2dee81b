"""Fusion of rankings."""

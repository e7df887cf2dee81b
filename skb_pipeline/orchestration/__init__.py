"""Dagster wiring, one file per concept. No logic lives here that a notebook might want; see the library."""

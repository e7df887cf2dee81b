"""Planner engines behind one interface: rules, a language model over HTTP or in the process, plans from a file."""

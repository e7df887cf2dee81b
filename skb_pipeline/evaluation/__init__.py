"""Metrics of rankings, their intervals and differences, slices of the questions, and the tables made of them."""

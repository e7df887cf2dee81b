"""Retrieval pipeline for semi-structured knowledge bases.

The library (every subpackage but ``orchestration``) is plain Python: data in, data out.
``orchestration`` wires it into Dagster assets; ``cli`` is the command line.
"""

__version__ = "0.1.0"

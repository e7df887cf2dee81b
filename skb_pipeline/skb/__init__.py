"""The SKB itself: text cleaning, ingest with quarantine, the DuckDB store and node documents."""

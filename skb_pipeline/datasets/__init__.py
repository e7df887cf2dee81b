"""Dataset specs (what an SKB looks like and how to retrieve from it) and the adapters that read its sources."""

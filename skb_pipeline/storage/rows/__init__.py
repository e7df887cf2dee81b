"""Row caches: results that are costly to compute, kept by the content they were computed from."""

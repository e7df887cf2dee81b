"""Everything that touches the disk: paths, atomic writes, artefacts with manifests, content hashes, DuckDB."""

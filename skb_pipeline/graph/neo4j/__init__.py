"""Plans as Cypher text, and the graph on a Neo4j server."""

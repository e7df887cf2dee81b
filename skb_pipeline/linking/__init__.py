"""From the texts of a plan to nodes: names, and their vectors."""

"""A catalogue of tables that changes, and Dagster as a person starts it: webserver, daemon and code server."""

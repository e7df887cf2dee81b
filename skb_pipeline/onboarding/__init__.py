"""A first look at somebody's tables: a drafted spec, and what a load would do."""

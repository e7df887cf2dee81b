"""Systems: what is done with a dataset to rank its nodes, each declared in YAML and of one kind.

``kinds/`` has one file per kind, ``builtin.yaml`` the systems that come along, ``registry.py`` reads both that and the
user's own file. Assets, checks, tables, traces and search follow from the registry.
"""

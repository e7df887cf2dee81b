"""The lock of versions: behaviour that changes must not keep its version by oversight."""

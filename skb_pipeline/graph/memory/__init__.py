"""Plans over arrays of neighbours in memory."""

"""Characters that nobody sees; a module of its own, as what prints must not wait for the imports of what cleans."""

INVISIBLE = (
    "\u00ad"  # soft hyphen
    "\u061c\u200e\u200f"  # marks of the writing direction
    "\u200b\u2060\ufeff"  # zero width space, word joiner, byte order mark
    "\u2061-\u2064"  # operators of formulas that are not shown
    "\u202a-\u202e\u2066-\u2069\u206a-\u206f"  # embedded writing directions and deprecated controls
)
"""Characters that show nothing and tell no words apart, as the inside of a character class."""

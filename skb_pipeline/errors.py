"""``UserError``: the base of every error that the person in front of the screen can mend."""


class UserError(Exception):
    """Its message says what is wrong and where, in words a user understands; the command line prints it alone."""

    def __str__(self) -> str:
        """The message; a KeyError among the bases would put it in quotes."""
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()

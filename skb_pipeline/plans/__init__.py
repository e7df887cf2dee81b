"""The plan language: plans, what they are checked against, what executing one gives."""

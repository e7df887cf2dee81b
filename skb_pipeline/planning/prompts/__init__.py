"""Prompts for planners that are language models, and the guidance that they contain."""

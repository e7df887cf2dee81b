"""The planner that works by rules."""

"""Where secrets come from, and where they never go."""

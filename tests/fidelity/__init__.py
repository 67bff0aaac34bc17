"""What a server said and what a host reads: the same bytes, but for what is listed."""

"""Search over tools, ranked by words. No I/O; knows nothing of connections."""

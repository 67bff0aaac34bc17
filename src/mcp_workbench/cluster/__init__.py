"""Replicas: what several `serve --http` need to serve the same hosts."""

"""Servers behind a URL: Streamable HTTP, and the HTTP+SSE transport of 2024-11-05.

link            from a frame to its outcome; sessions
requests        headers, redirects, Retry-After · responses: bodies, event streams, failures
event_streams   streams that are reopened; the HTTP+SSE transport

Loaded with the first server behind a URL, not at the start.
"""

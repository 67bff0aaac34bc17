"""Servers behind a URL: Streamable HTTP, and the HTTP+SSE transport of 2024-11-05."""

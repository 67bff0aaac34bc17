"""Bytes and texts that nobody should send, and what must hold all the same."""

"""Signing in to servers behind a URL with OAuth; loaded only for servers that ask for it."""

"""HTTP/1.1 for both sides: a client for upstream servers, a server for hosts."""

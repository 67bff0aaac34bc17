"""Upstream: connections to the MCP servers behind the workbench. Nothing else opens one.

pool            one connection per server: starts, leases, idles and drains them
connection      one server from start to end: handshake, state, refresh of lists; PoolContext
conversation    JSON-RPC with one server: requests, response handlers, failures
dial            links: processes, their exit reasons and stderr · http/ servers behind a URL
health          backoff, timeouts, idle time, limits on requests
tools           tools of a server · primitives: prompts and resources
subscriptions   log levels and updates · server_requests: elicitation, sampling and roots
cache           what servers offered last time, in memory and on disk
recent_failures servers that have just failed to start, for the next command
reports         what users and hosts see of connections
"""

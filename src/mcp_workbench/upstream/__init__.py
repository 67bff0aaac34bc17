"""Upstream: connections to the MCP servers behind the workbench. Nothing else opens one.

pool            one connection per server; starts, idles and drains them (leases: of short-lived hosts)
connection      one server from start to end (handshake, health, backoff, refresh, context)
conversation    JSON-RPC with one server (responses: handlers and failures; server_requests: its requests)
dial            processes and links (exit_reason, stderr_log) · http/ servers behind a URL
tools           tools of a server · primitives: prompts and resources · subscriptions: levels and updates
cache           what servers offered last time (cache_files: on disk) · reports: what users and hosts see
"""

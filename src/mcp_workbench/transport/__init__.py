"""JSON-RPC over pipes and HTTP. Knows nothing of toolboxes."""

"""JSON-RPC over bytes; knows nothing of toolboxes."""

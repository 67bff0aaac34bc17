"""How long the event loop is held by the largest messages, wherever they come from: `make steps`."""

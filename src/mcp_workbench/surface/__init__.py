"""The only place that answers hosts."""

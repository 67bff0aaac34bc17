"""The only place that opens connections to servers."""

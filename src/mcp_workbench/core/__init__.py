"""Values and pure decisions: no I/O, no tasks."""

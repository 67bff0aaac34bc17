"""Values and pure decisions; they know nothing of bytes, pipes or tasks."""

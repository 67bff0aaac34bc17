"""Ranking tools by words: pure, and knows nothing of servers that run."""

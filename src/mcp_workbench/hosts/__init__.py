"""The programs that host us: where their files are, what those say, and how one entry is changed."""

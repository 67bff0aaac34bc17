"""One workbench for many hosts: a process in the background, and those who join it."""

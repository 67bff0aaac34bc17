"""Calls that a person approves first."""

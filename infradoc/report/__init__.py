"""A diagnosis as data (report v1) and as text."""

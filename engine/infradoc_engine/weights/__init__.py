"""Readers of model files. Model files are untrusted."""

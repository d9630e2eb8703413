"""Faults that can be switched on in a running engine: each breaks it for real, in one way, and can be taken back."""

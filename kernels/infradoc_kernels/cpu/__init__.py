"""Compiled CPU versions of the operations, by numba. Import only where numba is installed."""

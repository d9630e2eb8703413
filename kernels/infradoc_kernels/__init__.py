"""Attention and elementwise kernels, chosen by device behind `ops`."""

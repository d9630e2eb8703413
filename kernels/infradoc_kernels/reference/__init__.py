"""Plain PyTorch twins of every kernel: readable first."""

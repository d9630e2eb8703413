"""The screen: `infradoc tui`. Shows what the fleet watches; holds no product logic of its own."""

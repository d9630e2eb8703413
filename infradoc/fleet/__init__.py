"""Many targets watched at once, each in a thread of its own: what the screen and the service look at."""

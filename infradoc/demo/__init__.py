"""The demo: a real engine, real traffic, two faults in turn; found, fixed live, verified at the client."""

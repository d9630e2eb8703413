"""The demo: a real engine, real traffic, four faults in turn; each found, fixed live, verified at the client."""

"""Real traffic: the load generator behind `infradoc bench` and `infradoc demo`."""

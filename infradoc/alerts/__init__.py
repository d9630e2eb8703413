"""From findings to notifications: incidents, silences and damping; a durable outbox; one sink a file in `sinks/`.

A watch hands over the findings that hold (`Alerting.observe`); the core decides what is worth telling and when; the
outbox keeps it until the sink has taken it, across restarts.
"""

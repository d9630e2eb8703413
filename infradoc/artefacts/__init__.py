"""Post-mortem input: what people have when something broke, recognised by content and read into events and facts."""

"""`infradoc watch`: targets watched for good, with alerts, a history and metrics of its own."""

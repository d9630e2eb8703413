"""A stated subset of PromQL, evaluated in process."""

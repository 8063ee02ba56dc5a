"""Progress, log and loggers of a run."""

"""Schemes: functions from labels to one array of sample indices per client."""

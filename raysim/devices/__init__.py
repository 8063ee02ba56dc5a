"""Devices of the clients from data: tables, a model of day and night, drawn tables, and public traces."""

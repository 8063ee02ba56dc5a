"""The engine: one round of any algorithm on any fleet, and the values that a round passes on."""

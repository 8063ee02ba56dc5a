"""The commands of `raysim`."""

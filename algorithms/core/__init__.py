"""Base of all floors: keys, layouts, sums and their tree, clients, the state and the fleet protocol."""

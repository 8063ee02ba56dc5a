"""What everything stands on: keys, layouts, sums and their tree, clients, the state and the fleet protocol."""

"""Options of a round: one file each, and what they are made of."""

"""Numbers that describe clients: class statistics, counted features, Table I."""

"""Models by name, built for the shape and classes of a population and initialised from a key."""

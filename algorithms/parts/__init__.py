"""The parts that an algorithm is made of."""

"""Making a population: from a source of samples to a folder."""

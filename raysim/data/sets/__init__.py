"""Data sets by name, one file a source or a paper; everything around them reads any of them."""

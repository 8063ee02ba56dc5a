"""Files of a run: its folder, tables, checkpoints and copies at a URI."""

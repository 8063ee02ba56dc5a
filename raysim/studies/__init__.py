"""Studies: algorithms x data sets x seeds x folds x grid, and what they come to."""

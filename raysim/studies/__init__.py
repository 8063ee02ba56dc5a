"""Studies: algorithms x data sets x seeds x folds x grid, compared in tables with a test of significance."""

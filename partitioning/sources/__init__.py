"""Sources of samples: files, folders and tables that can be partitioned."""

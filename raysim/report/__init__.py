"""The report: one self-contained HTML page about one run, or several side by side."""

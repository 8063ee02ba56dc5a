"""Errors of files that Arrow cannot read."""

import pyarrow as pa

UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError)
"""Errors that reading a damaged file raises; the last one where the name of a column is no UTF-8."""

"""Studies: algorithms x data sets x seeds x folds x grid, and what they come to."""

from raysim.study.concluding import conclude
from raysim.study.read import is_study

__all__ = ["conclude", "is_study"]

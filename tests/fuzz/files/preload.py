"""Imports of the commands that read data, for processes that are forked."""

import raysim.data.export
import raysim.data.sets.digit_domains
import raysim.report.page
import raysim.simulation.api  # noqa: F401

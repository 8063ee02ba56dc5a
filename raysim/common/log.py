"""Log of raysim; a run writes it to a file of its folder."""

import logging

LOG = logging.getLogger("raysim")

"""Personal store on a disk that may be full."""

from __future__ import annotations

from algorithms import Location, PersonalStore
from partitioning.common.disk import report_full_disk


class PersonalDisk(PersonalStore):
    """Personal store that reports a full disk in one line; see `PersonalStore`."""

    def put(self, record: bytes) -> Location:
        """Write the bytes of one record; raise DiskFullError if the disk is full."""
        with report_full_disk(self.folder):
            return super().put(record)

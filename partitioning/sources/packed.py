"""Sizes of compressed Arrow batches before they are decoded, read from their headers."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from partitioning.common.bounds import check_bound
from partitioning.common.paths import regular

_MAGIC = 8  # bytes before the first message of a file; a stream begins with it
_HEADER, _DATA = 2, 1  # fields of Arrow's flatbuffers: a message's header, and a dictionary's batch
_BUFFERS, _COMPRESSION = 2, 3


def check_batches(path: Path, *, is_file: bool) -> None:
    """Raise InputError if a compressed batch of an Arrow file or stream would be larger than MAX_BATCH_BYTES."""
    with pa.memory_map(str(regular(path))) as mapped:
        if is_file:
            mapped.seek(_MAGIC)
        for message in pa.ipc.MessageReader.open_stream(mapped):
            if message.type in ("record batch", "dictionary"):
                try:
                    size = sum(_unpacked(message))
                except struct.error as error:
                    raise OSError(f"a batch ends early: {error}") from error
                check_bound(
                    f"a batch of {path}", "bytes", size, "MAX_BATCH_BYTES", "export it again in smaller batches"
                )


def _unpacked(message: pa.Message) -> Iterator[int]:
    # A compressed buffer begins with its size when unpacked, or -1 if it is not packed.
    content, body = memoryview(message.metadata), memoryview(message.body)
    batch = _table(content, struct.unpack_from("<I", content)[0], _HEADER)
    if message.type == "dictionary":
        batch = _table(content, batch, _DATA)
    if not _field(content, batch, _COMPRESSION):
        return
    buffers = _table(content, batch, _BUFFERS)
    for place in range(struct.unpack_from("<I", content, buffers)[0]):
        start, length = struct.unpack_from("<2q", content, buffers + 4 + 16 * place)
        if length:
            yield max(struct.unpack_from("<q", body, start)[0], 0)


def _table(content: memoryview, table: int, field: int) -> int:
    # Position of the table or vector to which a field points.
    place = _field(content, table, field)
    return place + int(struct.unpack_from("<I", content, place)[0])


def _field(content: memoryview, table: int, field: int) -> int:
    # Position of a field; 0 if the table lacks it.
    fields = table - struct.unpack_from("<i", content, table)[0]
    entry, size = 4 + 2 * field, struct.unpack_from("<H", content, fields)[0]
    offset = struct.unpack_from("<H", content, fields + entry)[0] if entry < size else 0
    return table + int(offset) if offset else 0

"""A large message in parts, so that no decoding keeps the interpreter for long. Pure.

Protobuf's parser lets no other thread run while it parses. Messages that are merged one after the
other are one message: lists grow, messages join, and of any other field the last value counts. So
a body is cut between its fields, and within fields where merging joins what was cut.
"""

from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

PART_BYTES = 64 * 1024
"""Parsing so much takes some hundred microseconds, or a millisecond where it is all numbers."""

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_TYPES = {
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
    FieldDescriptor.TYPE_FLOAT: 4,
}
_WHOLE_TYPES = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


class _Field(NamedTuple):
    """Where a field of a body lies: its tag, its value without a length, and its number."""

    start: int
    value: int
    stop: int
    number: int
    wire_type: int


def message_parts(
    body: bytes, descriptor: Descriptor, *, part_bytes: int = PART_BYTES
) -> Iterator[bytes]:
    """Bodies of about ``part_bytes`` at most that give the message of ``body`` when merged.

    A text, a string of bytes, or one message of a list stays whole. Raises DecodeError for what
    is no message, and for a message of a list with more than ``part_bytes`` of numbers, which
    none of the contract has.
    """
    start = 0
    for field in _fields(body):
        if field.stop - field.start > part_bytes and field.wire_type == _DELIMITED:
            if start < field.start:
                yield body[start : field.start]
            pieces = _pieces(field, body, descriptor, part_bytes)
            yield from (body[field.start : field.stop],) if pieces is None else pieces
            start = field.stop
        elif field.stop - start > part_bytes and start < field.start:
            yield body[start : field.start]
            start = field.start
    if start < len(body):
        yield body[start:]


def _pieces(
    field: _Field, body: bytes, descriptor: Descriptor, part_bytes: int
) -> Iterator[bytes] | None:
    """A long field as several that give the same; None where it has to stay whole."""
    known = descriptor.fields_by_number.get(field.number)
    if known is None or known.type in _WHOLE_TYPES:
        return None
    value = body[field.value : field.stop]
    if known.message_type is None:
        parts = _numbers(value, part_bytes, _FIXED_TYPES.get(known.type))
    elif known.is_repeated:
        _check_element(value, known.message_type, part_bytes)
        return None
    else:
        parts = message_parts(value, known.message_type, part_bytes=part_bytes)
    tag = _varint_bytes(field.number << 3 | _DELIMITED)
    return (tag + _varint_bytes(len(part)) + part for part in parts)


def _numbers(value: bytes, part_bytes: int, number_bytes: int | None) -> Iterator[bytes]:
    """Packed numbers in parts; ``number_bytes`` each, None where each ends by its last byte."""
    start = 0
    while start < len(value):
        stop = min(len(value), start + part_bytes)
        if number_bytes is not None:
            stop = min(len(value), start + part_bytes // number_bytes * number_bytes)
        else:
            while stop < len(value) and value[stop - 1] & 0x80:
                stop += 1
        yield value[start:stop]
        start = stop


def _check_element(value: bytes, descriptor: Descriptor, part_bytes: int) -> None:
    number_bytes = 0
    for field in _fields(value):
        known = descriptor.fields_by_number.get(field.number)
        if known is None or known.type not in _WHOLE_TYPES:
            number_bytes += field.stop - field.start
    if number_bytes > part_bytes:
        raise DecodeError("an item of the message has more numbers than any may have")


def _fields(body: bytes) -> Iterator[_Field]:
    """The fields of a body, one after the other; raises DecodeError."""
    position = 0
    while position < len(body):
        start = position
        tag, position = _varint(body, position)
        wire_type, value = tag & 7, position
        if wire_type == _VARINT:
            _, position = _varint(body, position)
        elif wire_type == _FIXED64:
            position += 8
        elif wire_type == _FIXED32:
            position += 4
        elif wire_type == _DELIMITED:
            length, value = _varint(body, position)
            position = value + length
        else:
            raise DecodeError("the message has a group, which no message of the contract has")
        if position > len(body):
            raise DecodeError("the message is cut off")
        yield _Field(start, value, position, tag >> 3, wire_type)


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """A number of variable length, and the position after it."""
    number = shift = 0
    while position < len(body) and shift < 64:
        byte = body[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise DecodeError("a number of the message does not end")


def _varint_bytes(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)

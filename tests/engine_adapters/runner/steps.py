"""Steps of several sequences whose rows can be told apart."""

from engine_adapters.runner.model.step import Segment


def segments_of(parts: tuple[tuple[int, int, int], ...]) -> tuple[list[Segment], list[int]]:
    """Segments of (request_id, first position, token count), and a number for each row.

    The number is the row's position plus 1000 for each request id.
    """
    segments: list[Segment] = []
    positions: list[int] = []
    for request_id, first_position, token_count in parts:
        segments.append(
            Segment(
                request_id=request_id,
                first_row=len(positions),
                token_count=token_count,
                first_position=first_position,
                first_slot=0,
            )
        )
        positions += [
            position + 1000 * request_id
            for position in range(first_position, first_position + token_count)
        ]
    return segments, positions

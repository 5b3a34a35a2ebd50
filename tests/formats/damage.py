"""What happens to a file on its way to us: lines get lost, bytes change, the end is missing."""

from collections.abc import Callable, Iterator
from random import Random

from service.core.errors import InvalidInput

Read = Callable[[bytes], object]


def outcome(read: Read, content: bytes) -> object:
    """The reading, or what it is refused for, as something that can be compared."""
    try:
        return read(content)
    except InvalidInput as invalid:
        return invalid.faults


def lines_without_effect(
    read: Read, content: bytes, *, aside: Callable[[str], bool] = lambda line: line.startswith("#")
) -> list[int]:
    """The lines (from 1) that can be blanked without changing the reading or being refused.

    A line is blanked rather than deleted, for numbers of lines are part of a reading. Blank lines
    and those that `aside` names, the comments, are not tried.
    """
    whole = read(content)
    lines = content.decode().split("\n")
    return [
        number
        for number, line in enumerate(lines, start=1)
        if line.strip()
        and not aside(line.strip())
        and outcome(read, "\n".join([*lines[: number - 1], "", *lines[number:]]).encode()) == whole
    ]


def damaged(content: bytes, *, seed: int, times: int) -> Iterator[bytes]:
    """Versions of a file in which something is cut, doubled, swapped or overwritten."""
    random = Random(seed)
    for _ in range(times):
        lines = content.split(b"\n")
        kind = random.randrange(6)
        if kind == 0:
            yield content[: random.randrange(len(content))]
        elif kind == 1:
            yield content[random.randrange(len(content)) :]
        elif kind == 2:
            piece = bytearray(content)
            for _ in range(random.randint(1, 8)):
                piece[random.randrange(len(piece))] = random.randrange(256)
            yield bytes(piece)
        elif kind == 3:
            place = random.randrange(len(lines))
            yield b"\n".join([*lines[:place], *lines[place:][:2], *lines[place:]])
        elif kind == 4:
            first, second = random.randrange(len(lines)), random.randrange(len(lines))
            lines[first], lines[second] = lines[second], lines[first]
            yield b"\n".join(lines)
        else:
            start = random.randrange(len(content))
            yield content[:start] + content[start + random.randint(1, 40) :]


def read_damaged(read: Read, content: bytes, *, seed: int, times: int = 300) -> int:
    """How many damaged versions are still read; any other error than a refusal goes through."""
    outcomes = (outcome(read, each) for each in damaged(content, seed=seed, times=times))
    return sum(not isinstance(found, tuple) for found in outcomes)

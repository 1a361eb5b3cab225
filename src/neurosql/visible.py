"""Text from files on a terminal: names of strangers can't move its cursor, change its colours or reverse its lines."""

from __future__ import annotations


def visible(text: str) -> str:
    """The text with an escape such as `\\x1b` in place of every character that is not printed; lines stay lines."""
    return "".join(letter if letter == "\n" or letter.isprintable() else _escape(letter) for letter in text)


def in_one_line(text: str) -> str:
    """`visible`, with an escape in place of line breaks too."""
    return visible(text).replace("\n", r"\n")


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()

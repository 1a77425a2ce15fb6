"""Values that travel as one text: parts with a separator between them, whatever the parts hold.

Names of a policy hold neither separators nor `%`, so their text is the parts as they are. What no policy can name is
percent-encoded (as RFC 3986 §2.1), so that nobody's name can pass for two.
"""

from __future__ import annotations

from collections.abc import Sequence


def join(separator: str, parts: Sequence[str]) -> str:
    """The text of parts, which `cut` reads. `separator` is one character, none of a hexadecimal number."""
    text = separator.join(parts)
    if "%" not in text and text.count(separator) == max(len(parts) - 1, 0):
        return text
    return separator.join(escaped(separator, part) for part in parts)


def cut(separator: str, text: str) -> list[str]:
    """The parts of a text that `join` made; one at least."""
    parts = text.split(separator)
    return [unescaped(separator, part) for part in parts] if "%" in text else parts


def escaped(separator: str, part: str) -> str:
    """A part as it stands in a text."""
    return part.replace("%", "%25").replace(separator, _code(separator))


def unescaped(separator: str, part: str) -> str:
    """The inverse of `escaped`."""
    return part.replace(_code(separator), separator).replace("%25", "%")


def _code(separator: str) -> str:
    return f"%{ord(separator):02X}"

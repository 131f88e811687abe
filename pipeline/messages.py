"""Escapes outside text in messages for people."""


def printable(text: str) -> str:
    """``text`` as one line that is safe to show in a terminal, log or page: unprintable characters are escaped.

    These are control characters (ESC among them), line ends, and marks that change the direction of text.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)

"""How text from outside is written in messages for people."""


def printable(text: str) -> str:
    """``text`` in one line that a terminal, a log or a page shows as it is: what is not printable is escaped.

    That is control characters (ESC among them), ends of lines, and marks that turn the direction of what follows.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)

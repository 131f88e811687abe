"""A page of Firn as a browser sees it."""

import html
import re
from html.parser import HTMLParser
from pathlib import Path


def text_of(page: Path) -> str:
    """What a reader of a data-quality page reads, on one line."""
    body = page.read_text(encoding="utf-8").split("<main>")[1]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


class Page(HTMLParser):
    """A page's elements, links and text. An AssertionError where an element has a script of its own."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data

"""Writes docs/settings.md, the reference of all settings, from the code.

python -m infra.reference > docs/settings.md
"""

import sys
from collections.abc import Iterator

from firnlake.table.policy import SETTINGS, allowed, default_of, meaning, readable

HEAD = """# Settings

All settings of a table, with their defaults. `python -m infra.reference` makes this page from the code.

`firn config TABLE` shows the value of each setting and where the value comes from; `firn config set TABLE NAME=VALUE`
changes it, with `--topic` for one topic. In the table's properties, a setting has the prefix `firn.`, and for one topic
`firn.topic.<topic>.`; [configuration.md](configuration.md) has the rules and the background. Durations (`.ms`) and
sizes (`.bytes`) may have a unit, such as `7d`, `12h`, `30 min`, `512MB` (1000 bytes to the KB) or `512MiB` (1024 bytes
to the KiB).

*Table only*: topics can't override it. *One run*: `--property` and the form of the DAG can override it for one run.

| setting | meaning | allowed | default | source |
|---|---|---|---|---|
"""


def page() -> str:
    """The page in Markdown."""
    return HEAD + "\n".join(_rows()) + "\n"


def _rows() -> Iterator[str]:
    for name, setting in SETTINGS.items():
        scope = " *Table only.*" * setting.table_only + " *One run.*" * setting.one_run
        default = readable(name, default_of(name))
        yield f"| `{name}` | {meaning(name)}{scope} | {allowed(name)} | {default} | {setting.source} |"


if __name__ == "__main__":
    sys.stdout.write(page())

"""Every test gets an embedded lake of its own."""

from tests.support.embedded import lake, nothing_configured, table, templates

__all__ = ["lake", "nothing_configured", "table", "templates"]

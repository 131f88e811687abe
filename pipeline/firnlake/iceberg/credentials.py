"""The credentials in a catalog's properties, which no message may contain."""

import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

HIDDEN = "***"
_CREDENTIAL = re.compile(
    r"(secret-access-key|token|credential|password|account-key|client-secret|connection-string|authorization)$", re.I
)
"""Pattern of the names of properties that hold credentials (PyIceberg docs, "Catalogs" and "FileIO")."""


def credentials(properties: Mapping[str, str]) -> frozenset[str]:
    """The credentials in ``properties``: values of properties named like a credential, and passwords in addresses."""
    values = {value for name, value in properties.items() if _CREDENTIAL.search(name)}
    for password in filter(None, map(_password, properties.values())):
        values |= {password, unquote(password)}
    return frozenset(values - {""})


def without_credentials(text: str, properties: Mapping[str, str]) -> str:
    """``text``, such as a library's error message, with every credential of ``properties`` redacted."""
    # The longest credential first, because a shorter one may be part of it.
    for value in sorted(credentials(properties), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def _password(address: str) -> str | None:
    login, _, _ = urlsplit(address).netloc.rpartition("@")
    return login.partition(":")[2] or None

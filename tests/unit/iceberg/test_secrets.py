"""Credentials never appear in what Firn says."""

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.credentials import credentials, without_credentials

PROPERTIES = {
    "uri": "postgresql+psycopg2://firn:p%40ss@db/iceberg",
    "warehouse": "s3://lake",
    "s3.access-key-id": "AKIA",
    "s3.secret-access-key": "wJalr",
    "client.session-token": "FwoG",
    "token": "eyJ",
    "credential": "id:hunter2",
    "header.Authorization": "Basic bWU6eW91",
    "adls.account-key": "Zm9v",
    "token-refresh-enabled": "true",
    "oauth2-server-uri": "https://login",
}


def test_credentials_are_known_by_name_or_place() -> None:
    assert credentials(PROPERTIES) == {
        *("p%40ss", "p@ss", "wJalr", "FwoG", "eyJ", "id:hunter2", "Basic bWU6eW91", "Zm9v")
    }


@pytest.mark.parametrize("text", ["{'token': 'eyJ'}", "for postgresql://firn:p%40ss@db", "password p@ss is wrong"])
def test_it_is_struck_out(text: str) -> None:
    said = without_credentials(text, PROPERTIES)
    assert "***" in said
    assert not any(value in said for value in credentials(PROPERTIES))


def test_the_longest_first() -> None:
    assert without_credentials("abcd abc", {"token": "abc", "credential": "abcd"}) == "*** ***"


def test_a_lake_prints_none(lake: Lake) -> None:
    shown = repr(Lake("x", PROPERTIES, lake.home))
    assert not any(value in shown for value in credentials(PROPERTIES))

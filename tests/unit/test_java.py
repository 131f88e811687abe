"""PyIceberg's configuration is all that a user writes: what Iceberg's Java library is given follows from it."""

from pathlib import Path

import pytest

from pipeline.lake import Lake
from pipeline.lake.java import java_properties

POSTGRES = "postgresql+psycopg2://me:p%40ss@db/iceberg"


def of(**properties: str) -> dict[str, str]:
    """Java's properties for PyIceberg's, in which ``__`` stands for a dot and ``_`` for a hyphen."""
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in properties.items()}
    return java_properties(Lake("x", named, Path("/home/me")))


class TestObjectStore:
    """The properties of PyIceberg's FileIO under the names of Iceberg's S3FileIO."""

    @pytest.mark.parametrize("catalog", [{"uri": POSTGRES, "warehouse": "s3://lake/w"}, {"uri": "http://catalog"}])
    def test_credentials_region_and_endpoint(self, catalog: dict[str, str]) -> None:
        found = of(
            **catalog,
            s3__endpoint="http://store:9000",
            s3__region="eu-central-1",
            s3__access_key_id="id",
            s3__secret_access_key="secret",  # noqa: S106
            s3__session_token="token",  # noqa: S106
        )
        assert {name: value for name, value in found.items() if name.startswith(("s3.", "client."))} == {
            "s3.endpoint": "http://store:9000",
            "client.region": "eu-central-1",
            "s3.access-key-id": "id",
            "s3.secret-access-key": "secret",
            "s3.session-token": "token",
            "s3.path-style-access": "true",
        }

    def test_the_client_names_are_those_of_the_store(self) -> None:
        found = of(uri="http://c", client__access_key_id="id", client__secret_access_key="x")  # noqa: S106
        assert (found["s3.access-key-id"], found["s3.secret-access-key"]) == ("id", "x")

    def test_where_the_bucket_stands_in_the_address(self) -> None:
        """Arrow puts it into the path of an endpoint that was given, unless told otherwise; AWS has it in front."""
        assert "s3.path-style-access" not in of(uri="http://c", s3__region="eu-central-1")
        virtual = of(uri="http://c", s3__endpoint="http://s", s3__force_virtual_addressing="true")
        assert "s3.path-style-access" not in virtual
        chosen = of(uri="http://c", s3__endpoint="http://s", s3__path_style_access="false")
        assert chosen["s3.path-style-access"] == "false"

    def test_encryption_that_is_asked_for_is_asked_for_on_both_sides(self) -> None:
        found = of(uri="http://c", s3__server_side_encryption="aws:kms", s3__sse_kms_key_id="key")
        assert (found["s3.sse.type"], found["s3.sse.key"]) == ("kms", "key")
        assert of(uri="http://c", s3__server_side_encryption="AES256")["s3.sse.type"] == "s3"

    @pytest.mark.parametrize("warehouse", ["s3://lake/w", "gs://lake/w", "abfss://lake@account/w"])
    def test_a_sql_catalog_reads_by_the_scheme_of_each_path(self, warehouse: str) -> None:
        assert of(uri=POSTGRES, warehouse=warehouse)["io-impl"] == "org.apache.iceberg.io.ResolvingFileIO"

    @pytest.mark.parametrize("warehouse", ["file:///lake", "/lake"])
    def test_local_files_are_hadoops(self, warehouse: str) -> None:
        assert "io-impl" not in of(uri=POSTGRES, warehouse=warehouse)

    def test_what_only_python_knows_stays_there(self) -> None:
        assert of(uri="http://c", py_io_impl="a.B", py_catalog_impl="a.C") == {"type": "rest", "uri": "http://c"}


class TestPostgreSql:
    """PyIceberg takes an SQLAlchemy address, Java's driver one of its own."""

    def test_encryption_of_the_connection_is_kept(self) -> None:
        found = of(uri=f"{POSTGRES}?sslmode=verify-full&sslrootcert=/ca.pem&application_name=firn")
        assert found["uri"] == "jdbc:postgresql://db:5432/iceberg"
        assert {name: value for name, value in found.items() if name.startswith("jdbc.")} == {
            "jdbc.schema-version": "V1",
            "jdbc.user": "me",
            "jdbc.password": "p@ss",
            "jdbc.sslmode": "verify-full",
            "jdbc.sslrootcert": "/ca.pem",
        }

    def test_hosts(self) -> None:
        assert of(uri="postgresql://[::1]:5433/c")["uri"] == "jdbc:postgresql://[::1]:5433/c"
        assert of(uri="postgresql:///c")["uri"] == "jdbc:postgresql://localhost:5432/c"


@pytest.mark.parametrize("kind", ["sql", "SQL", ""])
def test_the_type_may_be_left_to_the_address(kind: str) -> None:
    assert of(type=kind, uri=POSTGRES)["type"] == "jdbc"

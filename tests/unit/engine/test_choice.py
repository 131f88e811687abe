"""The choice of a command's engine."""

from pathlib import Path

import pytest

from firnlake.engine.choice import Engines
from firnlake.errors import RefusedError


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRN_ENGINE", raising=False)
    monkeypatch.delenv("FIRN_LOCAL_MAX_BYTES", raising=False)


def test_the_size_decides_by_default() -> None:
    assert Engines().choice == "auto"


def test_the_environment_chooses_where_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_ENGINE", "local")

    assert Engines().choice == "local"
    assert Engines("auto").choice == "auto"


def test_an_engine_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"engine 'flink'; allowed: spark, local, auto"):
        Engines("flink")


def test_local_needs_no_spark_whatever_the_size() -> None:
    with Engines("local") as engines:
        assert engines.of(2**50).name == "local"


def test_auto_takes_local_below_the_limit() -> None:
    with Engines("auto", local_max_bytes=100) as engines:
        assert engines.of(99).name == "local"


@pytest.mark.parametrize("java_home", ["/no/such/java", ""])
def test_auto_takes_local_where_java_is_missing_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, java_home: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_home)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    said: list[str] = []
    with Engines("auto", local_max_bytes=100, tell=said.append) as engines:
        assert [engines.of(size).name for size in (10, 1000, 2000)] == ["local"] * 3
    (line,) = said
    assert line.startswith("1,000 bytes are compacted in this process: ")
    assert "Java 17 or newer" in line


def test_spark_without_java_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with Engines("spark") as engines, pytest.raises(RefusedError, match=r"Java 17 or newer.*--engine local"):
        engines.of(0)


def test_auto_asks_the_environment_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_LOCAL_MAX_BYTES", "2000")

    assert Engines("auto").local_max_bytes == 2000


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_LOCAL_MAX_BYTES", "2 GB")

    with pytest.raises(RefusedError, match=r"FIRN_LOCAL_MAX_BYTES is '2 GB'; allowed: a number of bytes"):
        Engines("auto")

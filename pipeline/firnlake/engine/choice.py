"""Choose the engine for a job: the requested engine, or with ``auto`` one that suits the job's size and the machine."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from firnlake.errors import RefusedError

if TYPE_CHECKING:
    from firnlake.engine.engine import Engine
    from firnlake.engine.spark import SparkEngine


CHOICES = ("spark", "local", "auto")
LOCAL_MAX_BYTES = 256 * 2**20


class Engines:
    """The engines of one command. Each engine starts at its first use, and only once.

    ``choice`` is one of CHOICES, by default FIRN_ENGINE, or ``auto`` if that is not set. With ``auto``, a job runs in
    this process if it has fewer input bytes than ``local_max_bytes`` (by default FIRN_LOCAL_MAX_BYTES, or 256 MiB), or
    if Spark can't run. ``title`` names the Spark application. ``tell`` gets a line about the application once it runs,
    or the reason why Spark can't run. Raises RefusedError for any other ``choice``.
    """

    def __init__(
        self,
        choice: str | None = None,
        title: str = "firn",
        *,
        local_max_bytes: int | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.choice = choice or os.environ.get("FIRN_ENGINE") or "auto"
        if self.choice not in CHOICES:
            raise RefusedError(f"engine {self.choice!r}; allowed: {', '.join(CHOICES)}")
        self.local_max_bytes = _local_max_bytes() if local_max_bytes is None else local_max_bytes
        self._title = title
        self._tell = tell
        self._spark: SparkEngine | None = None
        self._without: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def of(self, input_bytes: int) -> "Engine":
        """The engine for a job that reads ``input_bytes`` bytes.

        Raises UnavailableError when Spark does not start, and RefusedError when Spark is not installed or its workers
        can't run Firn.
        """
        if self.choice == "local" or (self.choice == "auto" and not self._spark_suits(input_bytes)):
            from firnlake.engine.local import LocalEngine

            return LocalEngine()
        if self._spark is None:
            self._spark = self._started()
        return self._spark

    def close(self) -> None:
        """Close the started engines."""
        if self._spark:
            self._spark.close()
            self._spark = None

    def _spark_suits(self, input_bytes: int) -> bool:
        if input_bytes < self.local_max_bytes or self._without:
            return False
        from firnlake.engine.session import lacking

        self._without = lacking()
        if self._without and self._tell:
            self._tell(f"{input_bytes:,} bytes are compacted in this process: {self._without}")
        return not self._without

    def _started(self) -> "SparkEngine":
        from firnlake.engine.session import application, ends_with_command, start
        from firnlake.engine.spark import SparkEngine

        session = start(self._title)
        said = application(session)
        if said and self._tell:
            self._tell(said)
        engine = SparkEngine(session, owned=ends_with_command())
        engine.check()
        return engine


def _local_max_bytes() -> int:
    text = os.environ.get("FIRN_LOCAL_MAX_BYTES", "")
    if not text:
        return LOCAL_MAX_BYTES
    try:
        return int(text)
    except ValueError:
        raise RefusedError(f"FIRN_LOCAL_MAX_BYTES is {text!r}; allowed: a number of bytes") from None

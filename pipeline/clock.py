"""The clock is an argument: whoever starts the work reads it once and hands it down.

Kafka counts time in milliseconds since the epoch, and so does Firn; ``--now`` and Airflow's run date come in as text
or ``datetime`` and are turned into that here.
"""

from datetime import UTC, datetime, timedelta

from pipeline.errors import RefusedError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def now_ms() -> int:
    """Milliseconds since the epoch, UTC, read from the machine's clock."""
    return to_ms(datetime.now(UTC))


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch of a timezone-aware ``moment``; a naive one is refused as ambiguous."""
    if moment.tzinfo is None:
        raise RefusedError(
            f"the time {moment.isoformat()} has no time zone; allowed: an aware time such as {moment.isoformat()}Z"
        )
    return (moment - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """The UTC moment of ``milliseconds`` since the epoch."""
    return _EPOCH + milliseconds * _MILLISECOND


def show_ms(milliseconds: int) -> str:
    """An epoch time for people, in UTC; a time that no calendar here reaches is shown as the number that it is."""
    try:
        return from_ms(milliseconds).isoformat(timespec="seconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{milliseconds} ms since the epoch"


def parse(text: str) -> int:
    """Milliseconds since the epoch of an ISO 8601 time (without a zone it is UTC) or of a number of milliseconds."""
    try:
        moment = from_ms(int(text)) if text.isdigit() else datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise RefusedError(
            f"{text!r} is not a time; allowed: ISO 8601 (2026-11-21T05:20:00Z) or milliseconds since the epoch"
        ) from error
    return to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))

"""The tables of the Airflow that runs, and what tables.toml says of each."""

from pathlib import Path

ASKED, CUT_OFF, DOWN, FILLED = "t.asked", "t.cut_off", "t.down", "t.backfilled"
KILLED, QUIET, TORN, WATCHED = "t.killed", "t.quiet", "t.torn", "t.watched"
STUCK, TORN_WATCHED, UNWATCHED = "t.stuck", "t.torn_watched", "t.unwatched"
DRY, OLD, CLEARED = "t.dry", "t.old_stage", "t.cleared"

LEAP_DAY = 'schedule = "0 0 29 2 *"'
"""By the clock in leap years: what starts the DAG sooner is something else."""
NEVER = f"{LEAP_DAY}\nwatched = false"
DAILY = 'schedule = "0 0 * * *"\nwatched = false'


def lines(home: Path) -> dict[str, str]:
    """The lines of each table; those who are told of something write it to a file in ``home``."""

    def told(name: str) -> str:
        return f"notify = [{{ class = 'notice.FileNotifier', path = '{home / name}', text = '{{{{ exception }}}}' }}]"

    return {
        ASKED: f"{NEVER}\ndeadline_minutes = 1\n{told('late.txt')}",
        CLEARED: NEVER,
        # Spark takes long enough to start that the catalog can go away meanwhile.
        CUT_OFF: f'{NEVER}\nengine = "spark"',
        # Tried once: a master that does not answer is as good as a catalog that does not, and would be asked again.
        DOWN: f'{NEVER}\nengine = "spark"\nconnection = "spark_down"\nretries = 0',
        DRY: NEVER,
        FILLED: DAILY,
        KILLED: f'{NEVER}\nengine = "spark"',
        OLD: f"{NEVER}\napproval_minutes = 10080",
        QUIET: NEVER,
        # Its runs fail at once, so that its work stays due.
        STUCK: f'{LEAP_DAY}\nengine = "spark"\nconnection = "spark_nowhere"',
        TORN: f"{NEVER}\n{told('notice.txt')}",
        TORN_WATCHED: LEAP_DAY,
        UNWATCHED: LEAP_DAY,
        WATCHED: LEAP_DAY,
    }

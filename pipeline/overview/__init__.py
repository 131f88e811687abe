"""What pages show of tables: the status of each as one file under Firn's home, written by runs, read by the API server.

Nothing here knows a catalog: who shows a page imports neither PyIceberg nor Airflow for it.
"""

from pipeline.overview.facts import Conditions, Details, Level, Publication, Quarantined, Summary, Verdict
from pipeline.overview.file import Overview, path_of, read, tables
from pipeline.overview.results import Report, report
from pipeline.overview.rows import COLUMNS, Page, Query, Shown, Sort

__all__ = [
    "COLUMNS",
    "Conditions",
    "Details",
    "Level",
    "Overview",
    "Page",
    "Publication",
    "Quarantined",
    "Query",
    "Report",
    "Shown",
    "Sort",
    "Summary",
    "Verdict",
    "path_of",
    "read",
    "report",
    "tables",
]

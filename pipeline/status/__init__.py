"""Status of a table as one document: its contents, its dirty ratio, the work that is due, and the work Firn has done.

``gather`` fills it from metadata; the command, the metrics and the pages in Airflow show it. Only ``gather`` and
``checkpoint`` use a catalog: a process that shows a stored status does not import PyIceberg.
"""

from pipeline.status.certificates import CertificateRow, Certificates, certificate_file, certificates
from pipeline.status.document import LaneVerdict, Summary
from pipeline.status.rows import Query, Shown, Sort
from pipeline.status.status import Status, path_of, read, tables
from pipeline.status.verdicts import report

__all__ = [
    "CertificateRow",
    "Certificates",
    "LaneVerdict",
    "Query",
    "Shown",
    "Sort",
    "Status",
    "Summary",
    "certificate_file",
    "certificates",
    "path_of",
    "read",
    "report",
    "tables",
]

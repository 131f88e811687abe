"""The application file for ``spark-submit``: the ordinary command line, on the submitter's Spark."""

import sys
from pathlib import Path

# Python puts the folder of a file that it runs in front of its path. There, `inspect` and `airflow` are Firn's own.
if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]

from firnlake.cli.main import main  # only on that path

if __name__ == "__main__":
    main()

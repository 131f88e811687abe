"""The application file for ``spark-submit``: the command ``firn`` on the Spark that ``spark-submit`` chooses."""

import sys
from pathlib import Path

# Python puts the folder of this file first on `sys.path`, where Firn's `inspect` and `airflow` would hide other modules
# of the same names.
if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]

from firnlake.cli.main import main  # after the change of `sys.path`

if __name__ == "__main__":
    main()

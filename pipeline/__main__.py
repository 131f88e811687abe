"""The application file for ``spark-submit``: the ordinary command line, on the submitter's Spark."""

from pipeline.cli import main

if __name__ == "__main__":
    main()

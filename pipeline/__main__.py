"""The application file for ``spark-submit``: the same command a person types, on the submitter's Spark."""

from pipeline.cli import main

if __name__ == "__main__":
    main()

"""As firn.py, the DAGs of tables 501 to 750 in firn.toml, for Airflow's DAGs folder."""

from firnlake.airflow import dags

globals().update(dags(__file__))

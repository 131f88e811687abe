"""As firn.py, the DAGs of tables 251 to 500 in firn.toml, for Airflow's DAGs folder."""

from firnlake.airflow import dags

globals().update(dags(__file__))

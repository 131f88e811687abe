"""The DAGs of the tables in firn.toml, for Airflow's DAGs folder."""

from firnlake.airflow import dags

globals().update(dags(__file__))

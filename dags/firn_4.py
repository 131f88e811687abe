"""As firn.py, the DAGs of tables 751 to 1,000 in firn.toml, for Airflow's DAGs folder."""

from firnlake.airflow import dags

globals().update(dags(__file__))

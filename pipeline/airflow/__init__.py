"""The modules of Firn that Airflow's own processes import; no other module of the package imports Airflow.

The DAG processor imports them again and again, so heavy imports wait until they are needed.
"""

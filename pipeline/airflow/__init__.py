"""What Airflow's own processes import of Firn; nothing else of the package imports Airflow.

The DAG processor imports these modules as well, over and over: what is heavy waits until it is needed.
"""

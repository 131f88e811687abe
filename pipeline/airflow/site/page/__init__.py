"""The Firn page as HTML: facts in, text out. It depends neither on Airflow nor on HTTP, so it can be tested alone."""

from pipeline.airflow.site.page.render import (
    certificates_html,
    overview_html,
    problem_html,
    reports_html,
    table_html,
)

__all__ = ["certificates_html", "overview_html", "problem_html", "reports_html", "table_html"]

"""The Firn page as HTML: facts in, text out. Knows neither Airflow nor HTTP, and can be tried without them."""

from pipeline.airflow.site.page.render import overview_html, problem_html, reports_html, table_html

__all__ = ["overview_html", "problem_html", "reports_html", "table_html"]

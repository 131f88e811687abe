"""Publish what has one plan, as a run publishes it; a plan that is not published raises its failure."""

from firnlake.iceberg.catalog import Lake
from firnlake.publish.attempts import Publication
from firnlake.publish.publish import publish_job


def publish(lake: Lake, identifier: str) -> Publication:
    result = publish_job(lake, identifier)
    for error in result.failures.values():
        raise error
    (publication,) = result.publications
    return publication

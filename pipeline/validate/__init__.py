"""Validate: Great Expectations compares a stage's result with its inputs and judges exactly that result."""

from pipeline.validate.validate import Judged, build_reports, validate

__all__ = ["Judged", "build_reports", "validate"]

"""Validate: Great Expectations compares a stage's result with its inputs and passes judgement on exactly that result."""

from pipeline.validate.validate import Judged, build_reports, validate

__all__ = ["Judged", "build_reports", "validate"]

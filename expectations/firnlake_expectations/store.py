"""The store of validation results, and the Great Expectations context that reads and writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext


RESULTS = "results"
BATCH = "firn-findings"
"""Great Expectations' name for the table of findings, as data source and as asset."""


def context_for(reports: Path, sites: dict[str, Any] | None = None) -> EphemeralDataContext:
    """A context that stores its results as files under `reports` and everything else in memory.

    No suite, data source or configuration is stored as a file, so processes share no mutable state.
    Usage statistics are off.
    """
    import great_expectations as gx
    from great_expectations.data_context.types.base import DataContextConfig, ProgressBarsConfig

    memory = {"store_backend": {"class_name": "InMemoryStoreBackend"}}
    config = DataContextConfig(
        stores={
            "expectations": {"class_name": "ExpectationsStore", **memory},
            "checkpoints": {"class_name": "CheckpointStore", **memory},
            "validation_definition_store": {"class_name": "ValidationDefinitionStore", **memory},
            "results": {
                "class_name": "ValidationResultsStore",
                "store_backend": {
                    "class_name": "TupleFilesystemStoreBackend",
                    "base_directory": str((reports / RESULTS).resolve()),
                    "suppress_store_backend_id": True,
                },
            },
        },
        expectations_store_name="expectations",
        checkpoint_store_name="checkpoints",
        validation_results_store_name="results",
        data_docs_sites=sites or {},
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )
    return gx.get_context(mode="ephemeral", project_config=config)


def context_in_memory() -> EphemeralDataContext:
    """A context that stores nothing."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context

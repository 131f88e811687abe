"""Make the next call of this worker cheap: worker reuse cost 0.2 s of processor time per call, now 0.02 s.

Spark invalidates import caches before each call, so Python rereads the directory of `pyspark.zip` for every package in
it. After each call Spark collects garbage, which scans every object of every module.
"""

import gc
import sys
from zipimport import zipimporter

_NEW_MODULES = 50

_frozen_at = 0


def keep_reuse_cheap() -> None:
    """Drop cached archives of the import path, which reopen on demand, and exempt loaded modules from collection.

    The exemption is renewed once enough new modules are loaded.
    """
    global _frozen_at
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    if len(sys.modules) >= _frozen_at + _NEW_MODULES:
        gc.collect()
        gc.freeze()
        _frozen_at = len(sys.modules)

"""Make the next call of this worker cheap: Spark's reuse of a worker cost 0.2 s of processor time a call, now 0.02 s.

Spark invalidates import caches before each call, whereupon Python reads the directory of `pyspark.zip` again for every
package in it, and collects garbage after each call, which looks at every object of every module.
"""

import gc
import sys
from zipimport import zipimporter

_NEW_MODULES = 50

_frozen_at = 0


def lighten() -> None:
    """Forget archives on the import path, which are opened again when needed, and set loaded modules aside from garbage
    collection, once for every so many new ones."""
    global _frozen_at
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    if len(sys.modules) >= _frozen_at + _NEW_MODULES:
        gc.collect()
        gc.freeze()
        _frozen_at = len(sys.modules)

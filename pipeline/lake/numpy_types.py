"""Types of NumPy arrays with one value per record, in the order of the records."""

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Longs = NDArray[np.int64]

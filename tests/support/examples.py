"""How many random histories a test tries.

Few are tried in a run of the suite, and always the same ones where a test says so; ``FIRN_EXAMPLES`` multiplies them
(``make histories``).
"""

import os
from typing import Final

TIMES: Final = int(os.environ.get("FIRN_EXAMPLES", "1"))


def times(few: int) -> int:
    """``few`` examples in a run of the suite, more on request."""
    return few * TIMES

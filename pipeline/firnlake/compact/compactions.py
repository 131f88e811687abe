"""How each lane compacts its plans; lane `retain` has nothing to compact."""

from collections.abc import Callable, Mapping
from typing import Final

from firnlake.compact.attempt import Attempt, ByPlan
from firnlake.compact.convert import converted
from firnlake.compact.erase import erased
from firnlake.compact.tasks import Result, rewritten
from firnlake.job.lane import Lane

COMPACTIONS: Final[Mapping[Lane, Callable[[Attempt], ByPlan[Result]]]] = {
    **{lane: rewritten for lane in Lane if lane.traits.level_out is not None},
    Lane.ERASE: erased,
    Lane.CONVERT: converted,
}

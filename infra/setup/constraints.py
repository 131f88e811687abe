"""Write the constraints that ship with the package: the locked versions of what a user's `pip` brings, without hashes.

    python -m infra.setup.constraints

`requirements.lock` tells after each package what needs it; what only the tools of development need is left out.
"""

import re

from infra.environment import CHECKOUT

LOCK = CHECKOUT / "requirements.lock"
CONSTRAINTS = CHECKOUT / "pipeline" / "firnlake" / "airflow" / "constraints.txt"
HEADER = "# The versions that Firn is tested with: pip install 'firnlake[airflow,spark]' -c constraints.txt\n"
_PACKAGE = re.compile(r"^([\w.-]+)(==[^\\\n]+?) *\\?$", re.MULTILINE)
_NEEDED_BY = re.compile(r"^    # +(?:via )?([\w.-]+(?: \(pyproject.toml[\w:.-]*\))?)$", re.MULTILINE)
ROOT = "firnlake (pyproject.toml)"
"""What the lock says of a package that the project itself or one of its extras names."""


def constraints(lock: str) -> str:
    """The text of the constraints for the text of a lock."""
    found = list(_PACKAGE.finditer(lock))
    ends = [match.start() for match in found[1:]] + [len(lock)]
    users_of = [
        (match[1], set(_NEEDED_BY.findall(lock, match.end(), end))) for match, end in zip(found, ends, strict=True)
    ]
    needed, before = {ROOT}, 0
    while len(needed) > before:
        before = len(needed)
        needed |= {name for name, users in users_of if users & needed}
    return HEADER + "".join(f"{match[1]}{match[2]}\n" for match in found if match[1] in needed)


if __name__ == "__main__":
    CONSTRAINTS.write_text(constraints(LOCK.read_text()))

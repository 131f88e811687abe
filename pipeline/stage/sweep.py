"""Sweep: discard the stages that nobody will publish any more, and shelve those whose plans failed."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from pipeline.errors import FirnError
from pipeline.history.published_plans import commits_folder
from pipeline.lake import Lake
from pipeline.lake.folders import delete_folder, store
from pipeline.stage.discard import discard, discard_lost, shelve
from pipeline.stage.leftovers import End, Leftovers, LeftStage


@dataclass(frozen=True)
class Swept:
    """What a sweep did: stages discarded, shelved as failure markers, and kept because something forbade it, and why.

    Markers that were there already and stages that may still be published are not listed.
    """

    discarded: dict[str, str] = field(default_factory=dict)
    shelved: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)


def sweep(lake: Lake, identifier: str, plan_ids: Iterable[str] = ()) -> Swept:
    """Discard the stages of table ``identifier`` that nobody will publish any more.

    These are the ones of ``plan_ids`` (the caller's own), those that can't be published because an input is gone, those
    older than ``firn.stage.max.age.ms``, and the oldest beyond ``firn.gc.stages.bytes``. Age is by the machine's clock:
    it is what stamped the stage. A failed stage whose inputs are all live is not discarded, however old, but shelved:
    it marks what must not be tried again, until another failure of the same lane and topic partition takes its place
    (C20).
    """
    with lake.answering():
        return clear(lake, Leftovers.find(lake, identifier, plan_ids))


def clear(lake: Lake, leftovers: Leftovers) -> Swept:
    """Do to ``leftovers`` what has to become of them."""
    swept = Swept()
    for left in leftovers.stages:
        try:
            with lake.answering():
                _end(lake, left, swept)
        except FirnError as error:
            swept.kept[left.identifier] = str(error)
    for folder in leftovers.folders:
        delete_folder(leftovers.target, folder.location)
        swept.discarded[folder.location] = "no stage is registered for this folder"
    files, _ = store(leftovers.target, commits_folder(leftovers.target))
    for document in leftovers.documents:
        with suppress(FileNotFoundError):
            files.delete_file(document.path)
    return swept


def _end(lake: Lake, left: LeftStage, swept: Swept) -> None:
    match left.end:
        case End.DISCARD:
            discard(lake, left.identifier)
            swept.discarded[left.identifier] = left.reason
        case End.SHELVE:
            shelve(lake, left.identifier)
            swept.shelved[left.identifier] = left.reason
        case End.CLEAR:
            discard_lost(lake, left.identifier)
            swept.discarded[left.identifier] = left.reason
        case End.UNKNOWN:
            swept.kept[left.identifier] = left.reason

"""The order in which a task reads its inputs: bootstrap inputs first, then all.

Source: Samza's chooser, `bootstrapping(priority(default))`. A bootstrap input has the highest priority there. Samza
chooses no other input of the container before each bootstrap partition has reached the offset that was the newest at
the start. Here the rule applies per task: a task whose bootstrap inputs have caught up reads all its inputs meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from samzapy.config import JobConfig
from samzapy.model.grant import BucketStart, Grant
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket

BatchPlace = tuple[bool, int, bool, int, SspKeyBucket]
"""The place of a position in a micro-batch."""


def batch_order(config: JobConfig) -> Callable[[BucketStart], BatchPlace]:
    """The order of the rows of one micro-batch, as a sort key of positions.

    Bootstrap inputs come first. Then the larger `samza.priority` comes first. At equal priority, broadcast inputs come
    first, so that a task handles a broadcast message before the other messages of the batch. The other streams follow
    in the order of task.inputs. The partitions of a stream are ordered by number, so the old partitions of a stream
    that grew come before the new ones.
    """
    broadcast = {item.system_stream for item in config.broadcast_inputs}

    @cache
    def of_stream(stream: str) -> tuple[bool, int, bool, int]:
        return (
            not config.is_bootstrap(stream),
            -config.priority(stream),
            stream not in broadcast,
            config.input_number(stream),
        )

    def place(start: BucketStart) -> BatchPlace:
        return (*of_stream(str(start.ssp_kb.ssp.system_stream)), start.ssp_kb)

    return place


class BootstrapInputs:
    """The tasks that read only their bootstrap inputs, with the end offsets.

    A task has this phase once under each of its grants: at the first start, if a bootstrap input has not been read up
    to its end at that time. Later messages of the input are read together with the other inputs, in the order of a
    micro-batch. A task that has only bootstrap inputs has no such phase.

    Attributes:
        ends: by bootstrap position that is still behind, the offset that it must reach first.
        waiting: the positions that the current query leaves out until then.
    """

    def __init__(self, config: JobConfig) -> None:
        self.ends: Mapping[SspKeyBucket, int] = {}
        self.waiting: frozenset[SspKeyBucket] = frozenset()
        self._is_bootstrap = cache(config.is_bootstrap)
        # The part of `ends` that is left, by grant; empty once the phase of the grant is over.
        self._left: dict[tuple[TaskName, int], Mapping[SspKeyBucket, int]] = {}

    def begin(
        self,
        grants: Iterable[Grant],
        starts: Mapping[SspKeyBucket, int],
        end_of: Callable[[SspKeyBucket], int],
    ) -> Mapping[SspKeyBucket, int]:
        """The part of `starts` that the next query reads.

        Args:
            starts: may lack positions of the grants.
            end_of: the current end offset of a position's input.
        """
        left: dict[tuple[TaskName, int], Mapping[SspKeyBucket, int]] = {}
        waiting: set[SspKeyBucket] = set()
        for grant in grants:
            own = [start.ssp_kb for start in grant.starts if start.ssp_kb in starts]
            others = {ssp_kb for ssp_kb in own if not self._is_bootstrap(str(ssp_kb.ssp.system_stream))}
            key = grant.task_name, grant.epoch
            ends = self._left.get(key)
            if ends is None:
                ends = {ssp_kb: end_of(ssp_kb) for ssp_kb in own if others and ssp_kb not in others}
            left[key] = {ssp_kb: end for ssp_kb, end in ends.items() if starts.get(ssp_kb, end) < end}
            if left[key]:
                waiting |= others
        self._left, self.waiting = left, frozenset(waiting)
        self._gather()
        return {ssp_kb: offset for ssp_kb, offset in starts.items() if ssp_kb not in waiting}

    def read_to(self, positions: Mapping[SspKeyBucket, int]) -> None:
        """Note that a micro-batch handled everything before `positions`."""
        for key, ends in self._left.items():
            self._left[key] = {ssp_kb: end for ssp_kb, end in ends.items() if positions.get(ssp_kb, 0) < end}
        self._gather()

    @property
    def is_over(self) -> bool:
        """True if the query leaves inputs out although the bootstrap inputs caught up."""
        return bool(self.waiting) and not self.ends

    def _gather(self) -> None:
        self.ends = {ssp_kb: end for ends in self._left.values() for ssp_kb, end in ends.items()}

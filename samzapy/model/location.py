"""The location of a processor: its host and fault domain.

The built-in answer is the host's name. A job may bring its own provider, named in its configuration
(`locationid.provider.factory`) as `module:Class`; the class is made with the job's properties as its one argument:

```python
class InRack:
    def __init__(self, config: Mapping[str, str]) -> None: ...

    def location_id(self) -> LocationId:
        return LocationId(host=os.environ["NODE_NAME"], fault_domain=os.environ["RACK"])
```

A launcher may name the host of a container (a logical host, a worker with a `host_` resource). Then that name is its
host, whatever the provider says: containers are started by it. The provider then gives only the fault domain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from samzapy.model.placement import SPECIAL_DESTINATIONS

_NAME = re.compile(r"[\x21-\x7e]{1,400}")


@dataclass(frozen=True, slots=True)
class LocationId:
    """A place where a processor finds its local state again.

    Attributes:
        host: the owner of one set of local directories: a machine, or a pod with its own volume.
        fault_domain: a rack or a zone, which fails as a whole; only compared, and empty if it is not known.

    Raises:
        ValueError: the host is empty, or one of the two holds blanks or anything but ASCII, or is longer than 400; or
            the host is called as a destination of requests is (`ANY_HOST`).
    """

    host: str
    fault_domain: str = ""

    def __post_init__(self) -> None:
        for name, value in (("host", self.host), ("fault_domain", self.fault_domain or "-")):
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                raise ValueError(f"{name}: wanted ASCII letters, digits and signs without blanks, found {value!r}")
        if self.host in SPECIAL_DESTINATIONS:
            raise ValueError(f"host: wanted a host's name, found {self.host}, which stands for others in requests")


class LocationIdProvider(Protocol):
    """Says where this processor is. Asked once, when the process starts."""

    def location_id(self) -> LocationId: ...

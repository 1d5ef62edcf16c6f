"""The credentials of a client of the coordinator.

They are apart from the client: most commands make an `Access` and ask no coordinator, so they load no HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from samzapy.config import is_loopback

if TYPE_CHECKING:
    import ssl

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The credentials of a client, and its check of the coordinator's certificate.

    Attributes:
        heartbeat: the credential of an execution; None: it has none.
        renew: called with the credential that a coordinator gives in place of an older one.
        read: the credential for status and metrics; None: there is none.
        tls: the context for `https`; None: coordinators with TLS are not asked.
        sends_in_clear: True: a credential may go to another host without TLS.
    """

    heartbeat: Callable[[str], str | None] = lambda execution_id: None
    renew: Callable[[str], None] = lambda credential: None
    read: Callable[[], str | None] = lambda: None
    tls: Callable[[], ssl.SSLContext] | None = None
    sends_in_clear: bool = False

    def header(self, url: str, credential: str | None) -> Mapping[str, str]:
        """The header with a credential, for a URL that may have it."""
        if credential is None:
            return {}
        try:
            target = urlsplit(url)
        except ValueError:
            return {}  # The client does not ask such a URL.
        if target.scheme != "https" and not is_loopback(target.hostname or "") and not self.sends_in_clear:
            _LOG.warning("%s: wanted https for a credential, found http; the request has none", url)
            return {}
        return {"Authorization": f"Bearer {credential}"}

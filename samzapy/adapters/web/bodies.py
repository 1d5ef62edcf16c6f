"""Read the bodies of requests, up to limits in bytes and in time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

BODIES_BYTES_MAX: Final = 256 * 1024 * 1024
"""All bodies together that are read at one time; this bounds the memory of a server."""
BODY_WAIT_S: Final = 10.0


@dataclass(slots=True)
class Bodies:
    """The bytes of all bodies that are being read."""

    byte_count: int = 0

    async def read(self, request: Request, bytes_max: int) -> bytes:
        """The whole body.

        Raises:
            HTTPException: it is too long, too slow or cut off.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_WAIT_S):
                async for chunk in request.stream():
                    body += chunk
                    self.byte_count += len(chunk)
                    if len(body) > bytes_max:
                        raise HTTPException(413, f"wanted a body of at most {bytes_max} bytes, found more")
                    if self.byte_count > BODIES_BYTES_MAX:
                        raise HTTPException(503, "wanted room for the body, found other bodies in it; send it again")
        except TimeoutError:
            raise HTTPException(408, f"wanted the body within {BODY_WAIT_S:.0f} s") from None
        except ClientDisconnect:
            raise HTTPException(400, "wanted the whole body, found the end of the connection") from None
        finally:
            self.byte_count -= len(body)
        return bytes(body)

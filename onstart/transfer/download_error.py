"""Errors of a download: final ones, with who is to blame, and those after which it is continued."""

from __future__ import annotations

import errno
import socket
import ssl
from http.client import HTTPException
from urllib.error import URLError

from vastrun.contract.data_files import Blame

_NO_NETWORK = {errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL}
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DataFileError(Exception):
    """A file cannot be downloaded. `blame` says whose fault it is."""

    def __init__(self, blame: Blame, text: str) -> None:
        super().__init__(" ".join(text.split()))
        self.blame = blame


class InterruptedDownload(Exception):
    """A download ended early and may be continued after `wait_s` seconds; None: after the usual pause.

    `blame`: of the DataFileError when it cannot be continued.
    """

    def __init__(self, blame: Blame, text: str, wait_s: float | None = None) -> None:
        super().__init__(" ".join(text.split()))
        self.blame, self.wait_s = blame, wait_s


def network_error(error: Exception, server: str) -> DataFileError | InterruptedDownload:
    """Return the error to raise for one of the network, which `server` or this machine caused."""
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return DataFileError("server", f"the certificate of {server} is not valid: {reason.verify_message}")
    if isinstance(reason, socket.gaierror):
        # Only a definite answer of the name servers is the job's fault.
        if reason.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return DataFileError("job", f"there is no server named {server}")
        return InterruptedDownload("host", f"this machine cannot look up {server}: {reason.strerror}")
    if isinstance(reason, OSError) and reason.errno in _NO_NETWORK:
        return InterruptedDownload("host", f"this machine cannot reach {server}: {reason.strerror}")
    if isinstance(reason, socket.timeout):
        return InterruptedDownload("server", f"{server} does not respond")
    if isinstance(reason, HTTPException):
        return InterruptedDownload("server", f"{server} sent an invalid response ({type(reason).__name__})")
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return InterruptedDownload("server", f"connection to {server} failed: {text[:200]}")


def disk_error(error: OSError) -> DataFileError:
    """Return the error to raise when a file cannot be written."""
    if error.errno in _NO_SPACE:
        return DataFileError("disk", "the disk is full")
    return DataFileError("host", f"this machine cannot store it: {error.strerror or error}")

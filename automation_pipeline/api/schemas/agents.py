"""What agents send, as examples of the document; what they are answered is made by the room."""

from collections.abc import Mapping

GREETING: Mapping[str, object] = {"agentVersion": "1.4.0"}
CLAIM: Mapping[str, object] = {"most": 4}
HALFWAY: Mapping[str, object] = {"attemptNo": 1, "leaseToken": 1, "percent": 50, "message": "Copying the save"}
SUCCEEDED: Mapping[str, object] = {
    "attemptNo": 1,
    "leaseToken": 1,
    "status": "success",
    "result": {"backup": "nightly-2026-05-04", "bytes": 7340032},
    "logRef": "/var/log/agent/12-1.log",
}
FAILED: Mapping[str, object] = {
    "attemptNo": 1,
    "leaseToken": 1,
    "status": "failed",
    "errorCode": "DISK_FULL",
    "error": "No space is left on /srv/saves.",
}
STOPPED: Mapping[str, object] = {"attemptNo": 1, "leaseToken": 1, "status": "cancelled"}

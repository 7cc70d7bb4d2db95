"""Payloads, which may be any bytes, in JSON, which can't."""

import base64

__all__ = ["payload_json"]


def payload_json(payload: bytes) -> dict[str, str]:
    """A payload as JSON can hold it.

    Args:
        payload: any bytes.

    Returns:
        `{"payload": text}`, or `{"payload_base64": ...}` when the bytes are no UTF-8.
    """
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}

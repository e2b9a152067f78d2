"""The rules: what a record of the message hub is, and what row it makes."""

import json
import re
import uuid
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from wit_world.imports.types import ColumnSpec, ColumnType, Reason

# The first six are the sorting key of the hosts' table, which every normalizer
# fills; the rest is this one's own.
COLUMNS = [
    ColumnSpec("service_type", ColumnType.CATEGORY, False),
    ColumnSpec("radio_access_type", ColumnType.CATEGORY, False),
    ColumnSpec("cell_id", ColumnType.TEXT, False),
    ColumnSpec("session_start_time", ColumnType.SECONDS, False),
    ColumnSpec("msisdn", ColumnType.TEXT, False),
    ColumnSpec("cdr_id", ColumnType.UUID, False),
    ColumnSpec("called_msisdn", ColumnType.TEXT, False),
    ColumnSpec("vendor_id", ColumnType.CATEGORY, False),
    ColumnSpec("ip_address", ColumnType.IPV4, True),
    ColumnSpec("message_parts", ColumnType.UINT32, False),
    ColumnSpec("delivered", ColumnType.BOOLEAN, False),
    ColumnSpec("delivered_at", ColumnType.MILLIS, True),
]

# Name: (required, type).
FIELDS = {
    "message_id": (True, str),
    "hub": (True, str),
    "access": (True, str),
    "cell": (True, str),
    "sent_at": (True, int),
    "from": (True, str),
    "to": (True, str),
    "parts": (True, int),
    "delivered_at": (False, int),
    "gateway": (False, str),
}
_TYPE_WORDS = {str: "a string", int: "an integer"}

_ACCESS = {"2G": "GERAN", "3G": "UTRAN", "4G": "EUTRAN", "5G": "NR", "WIFI": "WLAN"}
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
# "\ud800" is a string to Python, but no text that could be stored.
_SURROGATE = re.compile("[\ud800-\udfff]")
_DAY_MS = 86_400_000

# CPython's parser recurses, and past some thousand levels the sandbox's stack
# ends. No record of the hub has so many brackets.
_MOST_BRACKETS = 1000


class Refused(Exception):
    """A record that makes no row, or may not onto the topic."""

    def __init__(self, reason: Reason, field: str | None, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.field, self.detail = reason, field, detail


@dataclass(frozen=True)
class Settings:
    """What an operator may set."""

    max_age_ms: int = 90 * _DAY_MS

    @classmethod
    def read(cls, text: str) -> "Settings":
        """From a JSON text; raises ValueError with a sentence for the operator."""
        given = json.loads(text)
        if not isinstance(given, dict):
            raise ValueError("the settings must be a JSON object")
        days = given.pop("max_age_days", 90)
        if given:
            raise ValueError(f"unknown settings: {', '.join(given)}")
        if type(days) is not int or not 1 <= days <= 3650:
            raise ValueError("max_age_days must be an integer from 1 to 3650")
        return cls(max_age_ms=days * _DAY_MS)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a name stands there twice")
    return record


def parse(payload: bytes) -> dict[str, Any]:
    """Bytes to an object. Both questions go through here, so that they agree."""
    if payload.count(b"[") + payload.count(b"{") > _MOST_BRACKETS:
        raise Refused(Reason.MALFORMED_JSON, None, "nested too deeply")
    try:
        # Decoded first: json.loads would guess UTF-16 from bytes.
        record = json.loads(
            payload.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_twice
        )
    except ValueError:
        raise Refused(Reason.MALFORMED_JSON, None, "not JSON in UTF-8") from None
    if not isinstance(record, dict):
        raise Refused(Reason.MALFORMED_JSON, None, "not a JSON object")
    for name in FIELDS:
        value = record.get(name)
        if isinstance(value, str) and _SURROGATE.search(value):
            raise Refused(Reason.MALFORMED_JSON, name, f"{name} holds half a surrogate pair")
    return record


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _check_presence(record: dict[str, Any]) -> None:
    for name, (required, _) in FIELDS.items():
        if required and _absent(record.get(name)):
            raise Refused(Reason.MISSING_REQUIRED_FIELD, name, f"{name} is required")


def _check_types(record: dict[str, Any]) -> None:
    for name, (_, kind) in FIELDS.items():
        value = record.get(name)
        # Not isinstance: True is an int to Python.
        if not _absent(value) and type(value) is not kind:
            detail = f"{name} must be {_TYPE_WORDS[kind]}"
            raise Refused(Reason.NORMALIZATION_ERROR, name, detail)


def admit(record: dict[str, Any]) -> tuple[str, str]:
    """May this record onto the topic? Presence and types only; key and source."""
    _check_presence(record)
    _check_types(record)
    return record["message_id"], record["hub"]


def normalize(record: dict[str, Any], received_at: int, settings: Settings) -> tuple[Any, ...]:
    """The row of a record; reasons in the order that the contract gives them."""
    _check_presence(record)

    access = record["access"]
    rat = _ACCESS.get(access.strip().upper()) if isinstance(access, str) else None
    if rat is None:
        raise Refused(Reason.INVALID_RAT_VALUE, "access", "access is in no table")

    # The time of reception is the only clock: a replay gives the same row.
    earliest, latest = received_at - settings.max_age_ms, received_at + _DAY_MS
    for name in ("sent_at", "delivered_at"):
        value = record.get(name)
        if not _absent(value) and not (type(value) is int and earliest <= value <= latest):
            detail = f"{name} is not near the time of reception"
            raise Refused(Reason.INVALID_EPOCH, name, detail)
    sent_at, delivered_at = record["sent_at"], record.get("delivered_at")
    if _absent(delivered_at):
        delivered_at = None
    elif delivered_at < sent_at:
        detail = "delivered_at is before sent_at"
        raise Refused(Reason.INVALID_EPOCH, "delivered_at", detail)

    _check_types(record)

    def wrong(name: str, what: str) -> Refused:
        return Refused(Reason.NORMALIZATION_ERROR, name, f"{name} {what}")

    if not _UUID.fullmatch(record["message_id"]):
        raise wrong("message_id", "is no UUID")
    for name in ("from", "to"):
        if not _E164.fullmatch(record[name]):
            raise wrong(name, "is no E.164 number")
    if not 1 <= record["parts"] <= 255:
        raise wrong("parts", "is not 1 to 255")
    gateway = record.get("gateway")
    try:
        address = None if _absent(gateway) else int(IPv4Address(gateway))
    except AddressValueError:
        raise wrong("gateway", "is no IPv4 address") from None

    return (
        "sms",
        rat,
        record["cell"],
        sent_at // 1000,
        record["from"],
        uuid.UUID(record["message_id"]).int,
        record["to"],
        record["hub"],
        address,
        record["parts"],
        delivered_at is not None,
        delivered_at,
    )

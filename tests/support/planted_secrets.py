"""Secrets that tests plant, so that whatever shows one is found: in all that the suite writes.

A password of a test contains `MARK` wherever that can be; it is looked for as it is, and inside
base64 and hexadecimal numbers. Private keys and SCRAM verifiers are recognised by their forms. What
tests capture is looked through by conftest.py, what brokers write when they end; and whole files by

    python tests/support/planted_secrets.py FILE...
"""

import re
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: In every password that is planted: `planted("alice")`.
MARK: Final = "pa55w0rd"

# PKCS #8 with a key on P-256 begins so, and OpenSSL's older form of it.
_KEY_STARTS: Final = (
    bytes.fromhex("308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b0201010420"),
    bytes.fromhex("30770201010420"),
)
_SHOWN: Final = 60


def planted(name: str) -> str:
    """A password that would be found; hard to guess from any other."""
    return f"{name}'s own {MARK}!"


def _in_base64(data: bytes) -> Iterator[bytes]:
    """How bytes look inside base64, wherever they begin; without what their neighbours decide."""
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data)[first:last]


def _patterns() -> dict[str, re.Pattern[bytes]]:
    mark = MARK.encode()
    keys = [re.escape(b64encode(start)[:20]) for start in _KEY_STARTS]
    keys += [start.hex().encode() for start in _KEY_STARTS[:1]]
    encoded = b"|".join(re.escape(each) for each in {*_in_base64(mark)})
    return {
        "a password": re.compile(re.escape(mark)),
        "a password in base64": re.compile(encoded),
        "a password in hexadecimal": re.compile(mark.hex().encode(), re.IGNORECASE),
        "a private key": re.compile(b"|".join([rb"BEGIN [A-Z ]*PRIVATE KEY", *keys])),
        "a SCRAM verifier": re.compile(rb"SCRAM-SHA-(?:256|512)\$[0-9]+:[A-Za-z0-9+/=]+\$"),
    }


_PATTERNS: Final = _patterns()


def leaks(written: str | bytes) -> list[str]:
    """What a text shows of planted secrets: a line for each, without the secret."""
    data = written.encode("utf-8", "surrogateescape") if isinstance(written, str) else written
    found = []
    for what, pattern in _PATTERNS.items():
        for match in pattern.finditer(data):
            line = data[: match.start()].count(b"\n") + 1
            before = data[max(match.start() - _SHOWN, 0) : match.start()].rpartition(b"\n")[2]
            found.append(f"line {line}: {what}, after {before.decode('utf-8', 'replace')!r}")
    return found


def main() -> int:
    """Look through files; the exit status is 1 if one shows a secret."""
    status = 0
    for name in sys.argv[1:]:
        for leak in leaks(Path(name).read_bytes()):
            status = 1
            sys.stdout.write(f"{name}: {leak}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())

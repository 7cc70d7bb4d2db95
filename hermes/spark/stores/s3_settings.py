"""How an S3-compatible store is reached, and by whom: from options, Spark's settings, environment.

Options have Hadoop's names (`fs.s3a.endpoint`), with or without `spark.hadoop.` before them, and
hold for one bucket where they say so (`fs.s3a.bucket.NAME.endpoint`). What is given to Hermes wins
over what Spark has, and that over the environment; a key and its secret always come from one place.
Values are kept out of reprs, and are handed on only to who must sign requests.
"""

import configparser
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from hermes.errors import ConfigError

#: Looks up a setting of Spark's by Hadoop's name; None when it isn't set.
Lookup: TypeAlias = Callable[[str], str | None]

_PREFIX: Final = "fs.s3a."
_ANONYMOUS: Final = "AnonymousAWSCredentialsProvider"
_REGION: Final = "us-east-1"
_URL: Final = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+])(:[0-9]{1,5})?(/[!-~]*)?", re.ASCII)


class Credentials(NamedTuple):
    access_key: str
    secret_key: str
    session_token: str | None


@dataclass(frozen=True)
class S3Settings:
    """How to reach a bucket; at AWS without an endpoint.

    Attributes:
        credentials: who signs; None for whoever the machine is: a role, a web identity.
        is_anonymous: whether nobody signs.
        others: further settings for Spark, by Hadoop's names.
    """

    endpoint: str | None = None
    region: str = _REGION
    is_path_style: bool = False
    credentials: Credentials | None = field(default=None, repr=False)
    is_anonymous: bool = False
    others: Mapping[str, str] = field(default_factory=dict, repr=False)

    def for_obstore(self) -> dict[str, object]:
        settings: dict[str, object] = {
            "region": self.region,
            "virtual_hosted_style_request": not self.is_path_style,
            "conditional_put": "etag",
            "skip_signature": self.is_anonymous,
            "client_options": {"allow_http": self._is_plain, "timeout": "60s"},
        }
        if self.endpoint is not None:
            settings["endpoint"] = self.endpoint
        return settings | self._signed("access_key_id", "secret_access_key", "session_token")

    def for_delta(self) -> dict[str, str]:
        """The `storage_options` of deltalake: commits are conditional puts."""
        settings = {
            "AWS_REGION": self.region,
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not self.is_path_style).lower(),
            "AWS_CONDITIONAL_PUT": "etag",
            "AWS_S3_ALLOW_UNSAFE_RENAME": "false",
            "AWS_SKIP_SIGNATURE": str(self.is_anonymous).lower(),
            "AWS_ALLOW_HTTP": str(self._is_plain).lower(),
        }
        if self.endpoint is not None:
            settings["AWS_ENDPOINT_URL"] = self.endpoint
        return settings | self._signed(
            "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
        )

    def for_spark(self) -> dict[str, str]:
        settings = dict(self.others)
        if self.endpoint is not None:
            settings["fs.s3a.endpoint"] = self.endpoint
            settings["fs.s3a.endpoint.region"] = self.region
            settings["fs.s3a.path.style.access"] = str(self.is_path_style).lower()
            settings["fs.s3a.connection.ssl.enabled"] = str(not self._is_plain).lower()
        return settings | self._signed(
            "fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token"
        )

    def _signed(self, *names: str) -> dict[str, str]:
        pairs = zip(names, self.credentials or (), strict=False)
        return {name: text for name, text in pairs if text is not None}

    @property
    def _is_plain(self) -> bool:
        return self.endpoint is not None and self.endpoint.startswith("http:")


def find_settings(
    bucket: str, given: Mapping[str, str], spark: Lookup | None, environ: Mapping[str, str]
) -> S3Settings:
    """Put the settings of a bucket together: those given, else Spark's, else the environment's.

    A ConfigError names what isn't a setting of S3A, half a key, or an endpoint that is no URL.
    """
    own = {name.removeprefix("spark.hadoop."): text for name, text in given.items()}
    for name in own:
        if not name.startswith(_PREFIX):
            raise ConfigError(name, f"expected a setting of S3A, as in {_PREFIX}endpoint")
    places: list[Lookup] = [_of_bucket(bucket, own.get)]
    if spark is not None:
        places.append(_of_bucket(bucket, spark))
    profile = _profile(environ)
    environment = {
        "access.key": environ.get("AWS_ACCESS_KEY_ID"),
        "secret.key": environ.get("AWS_SECRET_ACCESS_KEY"),
        "session.token": environ.get("AWS_SESSION_TOKEN"),
        "endpoint": environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL"),
        "endpoint.region": environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"),
    }
    places += [environment.get, profile.get]

    def first(name: str) -> str | None:
        return next((text for each in places if (text := each(name))), None)

    credentials = next((found for each in places if (found := _credentials(each))), None)
    provider = first("aws.credentials.provider") or ""
    if credentials is None and _ANONYMOUS not in provider:
        _check_halves(first("access.key"), first("secret.key"))
    endpoint = _url(first("endpoint"), first("connection.ssl.enabled"))
    path_style = first("path.style.access")
    return S3Settings(
        endpoint,
        first("endpoint.region") or _REGION,
        endpoint is not None if path_style is None else path_style.lower() == "true",
        None if _ANONYMOUS in provider else credentials,
        _ANONYMOUS in provider,
        own,
    )


def names_credentials(given: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Whether credentials are at hand without a look at Spark's own settings."""
    pair = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    return any(name.endswith(".access.key") for name in given) or all(map(environ.get, pair))


def _of_bucket(bucket: str, lookup: Lookup) -> Lookup:
    """Look up `name` for a bucket: what is set for it alone, else for all."""
    return lambda name: (
        lookup(f"{_PREFIX}bucket.{bucket}.{name}") or lookup(f"{_PREFIX}{name}") or None
    )


def _credentials(lookup: Lookup) -> Credentials | None:
    access, secret = lookup("access.key"), lookup("secret.key")
    return Credentials(access, secret, lookup("session.token")) if access and secret else None


def _check_halves(access: str | None, secret: str | None) -> None:
    """Refuse half a pair: it's nobody's, and a role of the machine's was hardly meant."""
    for here, name, variable in (
        (access, "secret.key", "AWS_SECRET_ACCESS_KEY"),
        (secret, "access.key", "AWS_ACCESS_KEY_ID"),
    ):
        if here:
            raise ConfigError(
                f"{_PREFIX}{name}",
                f"expected it, or {variable}, in the same place as the other half of the pair",
            )


def _url(endpoint: str | None, is_secure: str | None) -> str | None:
    """An endpoint as a URL; S3A takes a bare host, too."""
    if endpoint is None:
        return None
    scheme = "http" if (is_secure or "").lower() == "false" else "https"
    url = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if not _URL.fullmatch(url):  # obstore panics at some that aren't
        # Not quoted: it may hold a password.
        raise ConfigError(f"{_PREFIX}endpoint", "expected http://HOST:PORT or https://HOST:PORT")
    return url


def _profile(environ: Mapping[str, str]) -> dict[str, str]:
    name = environ.get("AWS_PROFILE", "default")
    home = Path(environ.get("HOME", "/nonexistent"), ".aws")
    files = (
        (environ.get("AWS_SHARED_CREDENTIALS_FILE", home / "credentials"), name),
        (environ.get("AWS_CONFIG_FILE", home / "config"), f"profile {name}"),
    )
    names = {
        "aws_access_key_id": "access.key",
        "aws_secret_access_key": "secret.key",
        "aws_session_token": "session.token",
        "region": "endpoint.region",
        "endpoint_url": "endpoint",
    }
    found: dict[str, str] = {}
    for path, section in files:
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue  # its text may hold secrets; whoever needs it misses the credentials
        for each in (section, name):
            if parser.has_section(each):
                found = {names[k]: v for k, v in parser.items(each) if k in names} | found
    return found

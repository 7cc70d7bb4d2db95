"""Where the settings of S3 come from, and who gets to see them."""

import pytest
from planted_secrets import MARK, planted

from hermes.errors import ConfigError
from hermes.spark.stores.s3_settings import Credentials, find_settings, names_credentials

SECRET = planted("settings")


def test_what_is_given_wins_over_spark_and_the_environment() -> None:
    given = {"spark.hadoop.fs.s3a.access.key": "given", "fs.s3a.secret.key": SECRET}
    spark = {"fs.s3a.access.key": "sparks", "fs.s3a.secret.key": "s", "fs.s3a.endpoint": "http://h"}
    environ = {"AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "e", "AWS_REGION": "eu-north-1"}
    found = find_settings("b", given, spark.get, environ)
    assert found.credentials == Credentials("given", SECRET, None)
    assert (found.endpoint, found.region, found.is_path_style) == ("http://h", "eu-north-1", True)
    without = find_settings("b", {}, spark.get, environ)
    assert without.credentials == Credentials("sparks", "s", None)
    alone = find_settings("b", {}, None, environ)
    assert alone.credentials == Credentials("env", "e", None)
    assert (alone.endpoint, alone.is_path_style) == (None, False)


def test_a_key_and_its_secret_come_from_one_place() -> None:
    environ = {"AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "t"}
    assert find_settings("b", {"fs.s3a.access.key": "half"}, None, environ).credentials == (
        "env",
        "e",
        "t",
    )
    whole = {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"}
    assert find_settings("b", whole, None, environ).credentials == ("k", "s", None)


def test_half_a_pair_is_refused_unless_a_whole_one_is_found() -> None:
    half = {"AWS_ACCESS_KEY_ID": "env"}
    for given, environ, missing in (
        ({}, half, "secret.key: expected it, or AWS_SECRET_ACCESS_KEY, in the same place"),
        ({"fs.s3a.secret.key": SECRET}, {}, "access.key: expected it, or AWS_ACCESS_KEY_ID, in"),
        ({"fs.s3a.secret.key": SECRET}, half, "in the same place as the other half"),
    ):
        with pytest.raises(ConfigError, match=missing) as refused:
            find_settings("b", given, None, environ)
        assert MARK not in str(refused.value)
    spark = {"fs.s3a.access.key": "sparks", "fs.s3a.secret.key": "s"}
    assert find_settings("b", {}, spark.get, half).credentials == ("sparks", "s", None)
    nobody = {"fs.s3a.aws.credentials.provider": "software.AnonymousAWSCredentialsProvider"}
    assert find_settings("b", nobody, None, half).credentials is None


def test_a_bucket_may_have_settings_of_its_own() -> None:
    given = {"fs.s3a.bucket.mine.endpoint": "https://mine", "fs.s3a.endpoint": "https://all"}
    assert find_settings("mine", given, None, {}).endpoint == "https://mine"
    assert find_settings("other", given, None, {}).endpoint == "https://all"
    plain = {"fs.s3a.endpoint": "host:1", "fs.s3a.connection.ssl.enabled": "false"}
    assert find_settings("b", plain, None, {}).endpoint == "http://host:1"
    assert find_settings("b", {"fs.s3a.endpoint": "host:1"}, None, {}).endpoint == "https://host:1"


@pytest.mark.parametrize("endpoint", ["http://", "http://a b", "https://[::1", "ftp://h", "h:x"])
def test_an_endpoint_must_be_a_url(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="endpoint: expected http://HOST:PORT or https://HOST"):
        find_settings("b", {}, None, {"AWS_ENDPOINT_URL": endpoint})


@pytest.mark.parametrize(
    "endpoint", ["http://[::1]:9000", "https://h/gate/way", "http://127.0.0.1"]
)
def test_endpoints_are_kept_as_they_were_given(endpoint: str) -> None:
    assert find_settings("b", {}, None, {"AWS_ENDPOINT_URL": endpoint}).endpoint == endpoint


def test_profiles_of_aws_are_read(tmp_path) -> None:
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n"
        f"[team]\naws_access_key_id = t\naws_secret_access_key = {SECRET}\n"
    )
    (folder / "config").write_text("[profile team]\nregion = eu-west-1\nendpoint_url = http://h\n")
    home = {"HOME": str(tmp_path)}
    assert find_settings("b", {}, None, home).credentials == ("d", "ds", None)
    team = find_settings("b", {}, None, {**home, "AWS_PROFILE": "team"})
    assert (team.credentials, team.region, team.endpoint) == (
        ("t", SECRET, None),
        "eu-west-1",
        "http://h",
    )
    (folder / "credentials").write_text(f"{SECRET} no section\n")
    assert find_settings("b", {}, None, home).credentials is None


def test_everybody_gets_what_they_call_it() -> None:
    given = {"fs.s3a.endpoint": "http://h:1", "fs.s3a.access.key": "k", "fs.s3a.secret.key": SECRET}
    given["fs.s3a.session.token"] = "t"
    found = find_settings("b", {**given, "fs.s3a.threads.max": "3"}, None, {})
    obstore = found.for_obstore()
    assert (obstore["access_key_id"], obstore["secret_access_key"]) == ("k", SECRET)
    assert (obstore["session_token"], obstore["virtual_hosted_style_request"]) == ("t", False)
    delta = found.for_delta()
    assert (delta["AWS_SECRET_ACCESS_KEY"], delta["AWS_ALLOW_HTTP"]) == (SECRET, "true")
    assert (delta["AWS_CONDITIONAL_PUT"], delta["AWS_S3_ALLOW_UNSAFE_RENAME"]) == ("etag", "false")
    spark = found.for_spark()
    assert (spark["fs.s3a.secret.key"], spark["fs.s3a.threads.max"]) == (SECRET, "3")
    assert spark["fs.s3a.connection.ssl.enabled"] == "false"
    assert MARK not in repr(found)


def test_nobody_signs_where_that_is_said() -> None:
    name = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    environ = {"AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "e"}
    found = find_settings("b", {"fs.s3a.aws.credentials.provider": name}, None, environ)
    assert (found.is_anonymous, found.credentials) == (True, None)
    assert found.for_obstore()["skip_signature"] is True


def test_other_settings_are_refused_without_their_values() -> None:
    with pytest.raises(ConfigError, match=r"hermes\.s3\.secret: expected a setting of S3A") as told:
        find_settings("b", {"hermes.s3.secret": SECRET}, None, {})
    assert MARK not in str(told.value)


def test_credentials_at_hand_need_no_session() -> None:
    assert names_credentials({"spark.hadoop.fs.s3a.access.key": "k"}, {})
    assert names_credentials({}, {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"})
    assert not names_credentials({}, {"AWS_ACCESS_KEY_ID": "k"})
    assert not names_credentials({"fs.s3a.endpoint": "http://h"}, {})

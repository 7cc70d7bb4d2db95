from hermes.console.security_pages import UserRow, user_rows
from hermes.security.users import Users

HASHES = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def users() -> Users:
    found = Users.none().with_user("bob", None, ["etl"])
    return found.with_user("Alice", "a-long-password", ["etl", "analysts"])


def test_users_are_sorted_and_have_nothing_secret() -> None:
    assert user_rows(users(), "") == [
        UserRow("Alice", ("analysts", "etl"), HASHES),
        UserRow("bob", ("etl",), ()),
    ]


def test_users_are_found_by_name_and_by_group() -> None:
    assert [each.name for each in user_rows(users(), "ALI")] == ["Alice"]
    assert [each.name for each in user_rows(users(), "analysts")] == ["Alice"]
    assert [each.name for each in user_rows(users(), "etl")] == ["Alice", "bob"]
    assert user_rows(users(), "nobody") == []

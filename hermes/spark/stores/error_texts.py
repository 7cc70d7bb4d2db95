"""What obstore and deltalake say of failed requests, in a line without what was signed."""

import re

from hermes.quoting import printable


def error_text(text: str) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    code = re.search(r"<Code>(.*?)</Code>", plain)
    if code is not None:
        message = re.search(r"<Message>(.*?)</Message>", plain)
        said = f"{code[1]}: {message[1]}" if message else code[1]
        return f"the server says {printable(said, 300)}"
    first = plain.partition("\n")[0]
    if "Error performing" not in plain and "\u21b3" not in plain:
        return printable(first, 300)
    if "169.254.169.254" in plain or "credential" in plain.lower():
        return (
            "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "spark.hadoop.fs.s3a.access.key and spark.hadoop.fs.s3a.secret.key"
        )
    status = re.search(r"status code: (\d{3}[ \w]*)", plain)
    if status is not None:
        return f"the server says {status[1].strip()}"
    if "error sending request" in plain or "connect" in plain.lower():
        return "the server can't be reached"
    return printable(first.partition("Error performing")[0], 300)

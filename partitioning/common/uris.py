"""Passwords and tokens of URIs in a text, masked by the URI's structure."""

import re
from urllib.parse import urlsplit

MASK = "***"
"""Text in the place of a password."""

NAMED_USER = ("hdfs", "viewfs", "ssh", "sftp")
"""Schemes whose lone user is a name; in other schemes a lone user may be a token."""

PUBLIC = frozenset(
    (
        *("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open", "buffer_size", "charset"),
        *("check_directory_existence_before_creation", "check_same_thread", "connect_timeout", "default_block_size"),
        *("endpoint_override", "force_virtual_addressing", "kerb_ticket", "mode", "n", "region", "replication"),
        *("request_timeout", "retry_limit_seconds", "scheme", "smart_defaults", "sslmode", "timeout"),
        *("tls_ca_file_path", "user"),
    )
)
"""Keys of a query whose values are shown: options of file systems, and a few plain ones."""

# A path has one slash in place of two.
_START = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/(?:/+|(?=[^/\s]+@))")
_END = re.compile(r"\s|$")
_CLOSING = re.compile(r"[)\]}>'\",.;:!…]*$")
_PIECE = re.compile(r"([?&;#])([^?&;#]*)")
_MARKUP = re.compile(r"[\w.-]+(:\d+)?(?=[\[\]<>\"])")
_PORT = re.compile(r"([^:]*|\[[^\[\]]*\]):?(\d*|PORT)")


def masked(text: str) -> str:
    """Return a text in which the passwords and tokens of URIs are masked.

    A URI ends at white space, or at the quote that opened before it.
    """
    if ":/" not in text:
        return text
    shown, place = "", 0
    while found := _START.search(text, place):
        end = _end(text, found)
        rest = text[found.end() : end]
        closing = _CLOSING.search(rest)
        closed = len(rest) if closing is None or MASK in closing[0] else closing.start()
        shown += text[place : found.end()] + _masked_rest(found[0].partition(":")[0], rest[:closed]) + rest[closed:]
        place = end
    return shown + text[place:]


def masked_value(value: str) -> str:
    """Return a whole value with its secrets masked; a URI may have white space in a password."""
    found = _START.match(value)
    return found[0] + _masked_rest(found[0].partition(":")[0], value[found.end() :]) if found else masked(value)


def _end(text: str, start: re.Match[str]) -> int:
    quote = text[start.start() - 1 : start.start()]
    space = _END.search(text, start.end())
    word = len(text) if space is None else space.start()
    if not quote or quote not in "'\"`":
        # Markup may follow a plain host.
        host = _MARKUP.match(text, start.end(), word)
        return word if host is None or "@" in text[host.end() : word] else host.end()
    place = text.find(quote, start.end())
    while place >= 0:
        space = _END.search(text, place)
        # A password may have the quote as well, but a URI has an @ after its password.
        if "@" not in text[place : len(text) if space is None else space.start()]:
            return place
        place = text.find(quote, place + 1)
    return word


def _masked_rest(scheme: str, rest: str) -> str:
    """Return what follows `//` in a URI without secrets."""
    authority = re.split(r"[/?#;]", rest, maxsplit=1)[0]
    after, user = rest[len(authority) :], authority.rpartition("@")[0]
    if not _is_clear(authority, after):
        # The last @ ends the password, whatever is before it. Without one, all of the authority may be the password.
        authority, after = (MASK + rest[rest.rindex("@") :], "") if "@" in rest else (MASK, after)
        kept = re.split(r"[/?#;]", authority, maxsplit=1)[0]
        authority, after = kept, authority[len(kept) :] + after
    elif user and not (":" not in user and scheme.lower() in NAMED_USER):
        name, colon, _ = user.partition(":")
        authority = f"{name}:{MASK}" if colon else MASK
        authority += rest[len(user) : len(rest) - len(after)]
    return authority + _PIECE.sub(_masked_piece, after)


def _is_clear(authority: str, after: str) -> bool:
    """Return whether an authority has a host and a port, and no @ behind it could end a password."""
    host = authority.rpartition("@")[2]
    try:
        urlsplit(f"x://{authority}")
    except ValueError:
        return False
    if _PORT.fullmatch(host) is None:
        return False
    before = after.rpartition("@")[0] if "@" in after else ""
    return "@" not in after or not (":" in authority or "@" in authority or re.search("[?#;]", before))


def _masked_piece(piece: re.Match[str]) -> str:
    """Return a piece of a query, of parameters or of a fragment with its value masked."""
    key, equals, _ = piece[2].partition("=")
    if not piece[2] or key.lower() in PUBLIC:
        return piece[0]
    return f"{piece[1]}{key}={MASK}" if equals else piece[1] + MASK

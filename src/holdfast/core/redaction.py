"""Removes secrets from anything about to be stored or shown.

Every regular expression here takes linear time, whatever the input: a run without a limit is possessive, and
what follows it either cannot fail or fails once for the whole run.
"""

import contextvars
import functools
import re
from collections.abc import Callable, Iterable
from itertools import count, repeat
from operator import is_not

import msgspec

_KINDS_OF_KEY = "api access account auth aws encryption master private secret shared signing subscription"
# Places in a list, fences, and the vocabulary of language models: tokens that open no door.
_ORDINARY_TOKENS = "page next starting continuation fence claim input output eos bos pad unk sep cls stop"


def _behind(words: str, look: str, length: int) -> list[str]:
    """Looks behind the last so many letters for one of the words, with or without a sign between them."""
    return [f"(?{look}(?i:{word}){sign}.{{{length}}})" for word in words.split() for sign in ("", "[-_. ]")]


_KEY_OF_A_KIND = f"[eE][yY](?:{'|'.join(_behind(_KINDS_OF_KEY, '<=', 3))})"
# A set as the first thing of each branch lets the search pass over a letter without trying the branches.
_NAME = rf"""(?: [pP](?i:ass(?:(?:word|wd|phrase)s?|(?<=[_-]pass))|wd) | [sS](?<!:.)(?i:ecrets?)
    | [cC](?i:redentials?) | (?P<header>[aA](?i:uthorization)) | [kK]{_KEY_OF_A_KIND}[sS]?
    | (?P<token>[tT](?i:oken){"".join(_behind(_ORDINARY_TOKENS, "<!", 5))}) )[0-9]{{0,2}}"""
_END_OF_NAME = r"""(?:\\{0,3}["'`]\]?)?(?::[ ]?\w{1,20}(?=[ ]?=))?"""
_SEPARATOR = r"[ \t]{0,4}(?:=>|:=|!?={1,3}|:)[ \t]{0,4}"
_VALUE = r"""(?:(?P<quote>["'`])|(?P<escaped>\\++["'`]))?
    (?(header)(?P<scheme>(?i:bearer|basic|token|digest)[ ]{1,4})?)
    (?P<secret>(?(quote)(?![\s),;:\]}])(?>(?:\\.|(?!(?P=quote))[^\\\n])+)
        |(?(escaped)[^\\\n"'`]++|[^\s"'`,;&<>()\[\]{}|\\]{4,}+)))"""

# Compiled when something is first looked at closely.
_ATTRIBUTE = r"(?a)[A-Za-z_]\w*+(?>(?:\.[A-Za-z_]\w*+)+)"
_WORD = r"[A-Z]?[a-z]{1,15}[.:]?"
_RANDOM = r"(?=[^A-Za-z]*+[A-Za-z])[^0-9!@#$%^*+~]*+[0-9!@#$%^*+~]"
_PLAIN = r"""(?xa)
    \[redacted:[a-z-]++\] | \s*+ | [.~]{0,2}(?>(?:/[A-Z]?[a-z0-9_.-]++)+)/? | %[sdr] | %\(\w++\)s | %\w++%
    | \$\{\w++\} | \$\([\w\ ./-]++\) | \$[A-Za-z_]++ | \$[A-Z_][A-Z0-9_]*+ | <[\w\ -]++> | [*x.]{3,}+
    | \{{1,2}\ ?[\w.]++\ ?\}{1,2} | (?i:true|false|yes|no|none|null|nil|undefined|str|string|bytes
    |required|optional|bearer|basic|include|omit|same-origin)"""


@functools.cache
def _key_name() -> re.Pattern[str]:
    return re.compile(rf"(?:{_NAME}|(?i:\Apass|cookies?))\Z", re.VERBOSE)


@functools.cache
def _variable() -> re.Pattern[str]:
    return re.compile(rf"{_NAME}\Z", re.VERBOSE)


def _is_secret(match: re.Match[str]) -> bool:
    """Tells a value from an expression: `password=hunter2` from `token = next(tokens)`."""
    value = match["secret"]
    if value is None or re.fullmatch(_PLAIN, value):
        return False
    if "separator" not in match.re.groupindex:
        return True
    if match["scheme"]:
        return re.fullmatch(_WORD, value) is None
    if match["quote"] or match["escaped"]:
        return match["token"] is None or len(value) >= 16 or re.match(_RANDOM, value) is not None
    following = match.string[match.end() : match.end() + 1]
    if following in {"(", "["} or _variable().search(value[-40:]):
        return False
    if match["separator"] == "=" and following not in {")", ","}:
        return match["token"] is None or not value.isdigit()
    return re.match(_RANDOM, value) is not None and re.fullmatch(_ATTRIBUTE, value) is None


class Pattern(msgspec.Struct, frozen=True):
    """One kind of secret: what stands in the group `secret` of the regex is replaced."""

    name: str
    finds: str
    source: str
    flags: int

    @property
    def regex(self) -> re.Pattern[str]:
        # Compiled when the first hint turns up, and kept by `re` itself: most commands never see one.
        return re.compile(self.source, self.flags)

    def redact(self, text: str) -> str:
        return self.regex.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        if not _is_secret(match):
            return match[0]
        start, end = match.span("secret")
        return f"{match.string[match.start() : start]}[redacted:{self.name}]{match.string[end : match.end()]}"


def _shape(name: str, finds: str, body: str, *, prefix: str = "") -> Pattern:
    """A secret known by its own letters; a short prefix must not be the end of a longer word."""
    # The prefix comes before the look behind it, because a search is quick only for a leading literal.
    # The letter of an escape such as \n does not belong to the word that follows it.
    begin = rf"{prefix}(?:(?<![A-Za-z0-9]{prefix})|(?<=\\[nrt]{prefix}))" if prefix else ""
    # Taking the rest of the word with it keeps a second redaction from finding a new beginning there.
    return Pattern(name, finds, rf"(?P<secret>{begin}{body}[A-Za-z0-9_-]*+)", re.ASCII)


def _context(name: str, finds: str, regex: str) -> Pattern:
    """A secret known by what stands around it."""
    return Pattern(name, finds, regex, re.ASCII | re.VERBOSE)


# In this order: what spans lines, what has a shape of its own, what is known by its surroundings.
PATTERNS: tuple[Pattern, ...] = (
    _context(
        "pem",
        "Private key blocks in PEM or PGP armour, whole or cut short",
        r"""(?P<secret>-----BEGIN\ [A-Z0-9 ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----(?:
            (?>(?:[^-]++|-(?!----))*)-----END\ [A-Z0-9 ]{0,60}-----
            | (?>(?:(?:\s|\\{1,3}[nr]){0,8}(?:[A-Za-z0-9+/=]{16,}+|[A-Za-z-]{1,24}:\ [^\n\\]{0,100}+))*)
              (?:(?:\s|\\{1,3}[nr]){0,8}[A-Za-z0-9+/=]{1,15}+(?!\ ))?))""",
    ),
    _context(
        "jwt",
        "JSON Web Tokens: base64url parts, the first beginning with eyJ",
        r"(?P<secret>eyJ[\w=-]{8,}+\.[\w=-]{8,}+(?:\.[\w+/=-]++){0,3})|eyJ[\w=-]*+",
    ),
    _shape("aws", "AWS access key ids", r"A(?:3T[A-Z0-9]|BIA|CCA|KIA|SIA)[0-9A-Z]{16}"),
    _shape("github", "GitHub: ghp_ github_pat_ and family", r"g(?:h[pousr]_\w{36}|ithub_pat_\w{22})"),
    _shape("gitlab", "GitLab: glpat- and family", r"gl(?:pat|[dfr]t|cbt|imt|ptt|oas|soat|agent)-[\w-]{20}"),
    _shape("slack", "Slack: xoxb- xoxp- xapp- and others", r"[A-Za-z0-9-]{16}", prefix="x(?:ox[a-z]|app)-"),
    _shape("discord", "Discord bot tokens", r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27}"),
    _shape("telegram", "Telegram bot tokens; the bot's number stays", r"AA(?<=[0-9]{8}:AA)[\w-]{33}"),
    _shape("anthropic", "Anthropic: sk-ant-", r"ant-[\w-]{16}", prefix="sk-"),
    _shape("openai", "OpenAI: sk- sk-proj-", r"(?=[a-z_-]{0,64}[A-Z0-9])[\w-]{20}", prefix="sk-"),
    _shape("google", "Google: AIza ya29. GOCSPX-", r"(?:AIza[\w-]{35}|ya29\.[\w-]{20}|GOCSPX-[\w-]{20})"),
    _shape("stripe", "Stripe: sk_live_ rk_live_ whsec_", r"(?:[rs]k_(?:live|test)|whsec)_[A-Za-z0-9]{16}"),
    _shape("twilio", "Twilio account ids and keys: AC… SK…", r"[0-9a-z]{32}", prefix="(?:AC|SK)"),
    _shape("sendgrid", "SendGrid: SG.", r"[\w-]{16,64}\.[\w-]{16}", prefix=r"SG\."),
    _shape("mailgun", "Mailgun: key-", r"(?<![_-]key-)[0-9a-z]{32}", prefix="key-"),
    _shape("npm", "npm: npm_", r"[A-Za-z0-9]{30}", prefix="npm_"),
    _shape("pypi", "PyPI: pypi-", r"AgE[\w-]{50}", prefix="pypi-"),
    _shape("gateway", "The gateway's own: hf_gw_", r"gw_[\w-]{16}", prefix="hf_"),
    _shape("huggingface", "Hugging Face: hf_", r"[A-Za-z0-9]{30}", prefix="hf_"),
    _shape("age", "age identities: AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{40}"),
    _context("azure", "Azure: AccountKey=", r"AccountKey=(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})"),
    _context(
        "aws-assignment",
        "AWS secret keys given to a name such as aws_secret_access_key",
        rf"""[aA](?i:ws[-_ ]?(?:secret[-_ ]?)?(?:access[-_ ]?)?key){_END_OF_NAME}{_SEPARATOR}
            \\{{0,3}}["'`]?(?P<secret>[A-Za-z0-9/+]{{40}}(?![A-Za-z0-9/+=]))""",
    ),
    _context(
        "webhook",
        "The path of a Slack or Discord webhook",
        r"""(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks)
            /(?P<secret>[\w/-]{16,}+)""",
    ),
    _context(
        "url",
        "The password in a URL; user and host stay",
        r"""://(?>(?:\[redacted:[a-z-]++\]|[^\s/:@"'<>\\\[]++)*):
            (?P<secret>(?>(?:[^\s/@"'<>\\]++|@(?=[^\s/@"'<>\\]*+@))+))@""",
    ),
    _context(
        "cookie-line",
        "What follows Cookie: or Set-Cookie:",
        r"""[cC](?i:ookie)(?:\\{0,3}["'`])?[ \t]?:[ \t]{0,4}\\{0,3}["'`]?
            (?P<secret>[\w.-]{1,64}=[^\n\r"'`\\]++)""",
    ),
    _context(
        "bearer",
        "What follows Bearer, when it holds a digit",
        r"B(?:earer|EARER)[ ]{1,4}(?P<secret>(?=[A-Za-z._~+/=-]{0,256}[0-9])[A-Za-z0-9._~+/=-]{8,}+)",
    ),
    _context(
        "flag",
        "The value of a flag such as --password or --api-key",
        rf"--(?<![\w-]--)[\w-]{{0,40}}?{_NAME}(?P<separator>[ \t]{{1,4}}){_VALUE}",
    ),
    _context(
        "assignment",
        "The value of a name such as password, API_KEY, client_secret or Authorization, in text and in JSON",
        rf"{_NAME}{_END_OF_NAME}(?P<separator>{_SEPARATOR}){_VALUE}",
    ),
)


def _in_any_case(word: str) -> str:
    return f"(?i:{word})"


def _word(word: str, then: str = "") -> list[tuple[str, str]]:
    """A word in any case, looked for by the letter after the bar."""
    before, after = word.split("|")
    rest = rf"{_in_any_case(after[1:])}(?<={_in_any_case(before)}.{{{len(after)}}}){then}"
    return [(after[0], rest), (after[0].upper(), rest)]


def _prefixed(sign: str, prefixes: str) -> tuple[str, str]:
    """A prefix, a sign and a long run, looked for by the sign."""
    return sign, rf"[\w-]{{16}}(?:{'|'.join(f'(?<={prefix}.{{17}})' for prefix in prefixes.split())})"


def _any_of(*hints: tuple[str, str]) -> str:
    rests = {first: [rest for other, rest in hints if other == first] for first, _ in hints}
    return "|".join(f"{first}(?:{'|'.join(ways)})" for first, ways in rests.items())


_WORDS = "authori|zation coo|kie |credential |passphrase |passw |pwd se|cret"
# Every secret, and every name of one, contains a hint. The search stops at each first letter or sign, so they
# are chosen to be rare in clean text. Hints are ASCII that JSON never escapes, and none forbids what stands
# before it: a hint in a string is a hint in its encoding, and JSON without one need not be decoded.
_HINT = _any_of(
    *(hint for word in _WORDS.split() for hint in _word(word)),
    *_word("to|ken", "(?![A-Za-z_-])"),
    *_word("|pass", '"'),
    *((letter, f"{_KEY_OF_A_KIND}|ey-[0-9a-z]{{32}}") for letter in "kK"),
    ("_", _in_any_case("pass")),
    ("-", _in_any_case("pass")),
    _prefixed("_", "gh[pousr] pat live test whsec npm hf"),
    _prefixed("-", "sk gl[a-z]{2} gl[a-z]{3} gl[a-z]{4} gl[a-z]{5} xox[a-z] xapp pypi GOCSPX"),
    _prefixed(r"\.", "SG ya29"),
    (r"\.", r"[\w-]{6}\.[\w-]{27}|slack\.com|com/api/"),
    ("A", r"[BKS]IA|CCA|3T|Iza|A[\w-]{33}|C[0-9a-z]{32}"),
    ("S", "K[0-9a-z]{32}"),
    ("B", "EGIN |earer|EARER"),
    ("J", "(?<=eyJ)"),
    ("@", ""),
    (r"\\", "/|u00[2-7]"),  # other encoders than ours may escape what needs no escape
)


@functools.cache
def _hint() -> Callable[[bytes], re.Match[bytes] | None]:
    # Compiled when something is first looked at, and once for text and JSON: it takes milliseconds.
    return re.compile(_HINT.encode()).search


def _has_hint(text: str) -> bool:
    return _hint()(text.encode("utf-8", "surrogatepass")) is not None


# Values of secrets that were looked up in this context: whoever was given one may say it again. One need not
# look like a secret: it may be a number.
known_secrets: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar(
    "holdfast_secrets", default=()
)
# What is shorter stands in ordinary text, too.
_SHORTEST_KNOWN = 4
_REFERENCE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


def keep_secret(value: str) -> None:
    """From now on, in this context, the value is a secret wherever it stands."""
    known = known_secrets.get()
    if len(value) >= _SHORTEST_KNOWN and value not in known:
        # The longest first: one may contain another.
        known_secrets.set(tuple(sorted((*known, value), key=len, reverse=True)))


def redact_text(text: str) -> str:
    """Replaces every secret by `[redacted:<pattern>]`; text without one comes back as the same object."""
    for value in known_secrets.get():
        if value in text:
            text = text.replace(value, "[redacted:secret]")
    if not _has_hint(text):
        return text
    # Nothing but a key block spans lines, so that only the lines with a hint are worth a closer look.
    redacted = "\n".join(map(_redact_line, PATTERNS[0].redact(text).split("\n")))
    return text if redacted == text else redacted


def _redact_line(line: str) -> str:
    if not _has_hint(line):
        return line
    for pattern in PATTERNS[1:]:
        line = pattern.redact(line)
    return line


def redact_json(encoded: bytes) -> bytes:
    """Redacts a JSON document; one without secrets comes back as the same object, after a single search."""
    known = known_secrets.get()
    if _hint()(encoded) is None and not (known and any(_in_json(one) in encoded for one in known)):
        return encoded
    value = msgspec.json.decode(encoded)
    redacted = redact(value)
    return encoded if redacted is value else msgspec.json.encode(redacted)


def _in_json(value: str) -> bytes:
    return msgspec.json.encode(value)[1:-1]


def redact(value: object) -> object:
    """Redacts strings, keys and named values; a structure without secrets comes back as the same object."""
    return _walk(value, redact_text)


def _walk(value: object, conceal: Callable[[str], str]) -> object:
    match value:
        case str():
            return conceal(value)
        case list() | tuple():
            items = list(map(_walk, value, _after_flags(value, conceal)))
            if not any(map(is_not, items, value)):
                return value
            return items if isinstance(value, list) else tuple(items)
        case dict():
            keys = _redact_keys(value)
            items = list(map(_walk, value.values(), _concealments(value, conceal)))
            if not any(map(is_not, keys, value)) and not any(map(is_not, items, value.values())):
                return value
            return dict(zip(keys, items, strict=True))
        case _:
            return value


def _after_flags(
    value: list[object] | tuple[object, ...], conceal: Callable[[str], str]
) -> Iterable[Callable[[str], str]]:
    """A command in a list has the value of `--api-key` for its next item."""
    if not any(isinstance(one, str) and one.startswith("-") for one in value):
        return repeat(conceal)
    before = ("", *value[:-1])
    return [
        _conceal_value_of_flag
        if isinstance(flag, str)
        and flag.startswith("-")
        and _key_name().search(flag[-40:])
        and not str(one).startswith("-")
        else conceal
        for flag, one in zip(before, value, strict=True)
    ]


def _redact_keys(value: dict[object, object]) -> list[object]:
    """Two keys that become one are numbered, so that no entry is lost."""
    numbers = count(2)
    taken = set(value)
    keys: list[object] = []
    for key in value:
        redacted = unique = redact_text(key) if isinstance(key, str) else key
        while redacted is not key and unique in taken:
            unique = f"{redacted}#{next(numbers)}"
        taken.add(unique)
        keys.append(unique)
    return keys


def _concealments(value: dict[object, object], conceal: Callable[[str], str]) -> list[Callable[[str], str]]:
    if len(value) == 1 and _REFERENCE.fullmatch(str(value.get("$secret"))):
        return [redact_text]  # what hf.secret(…) is stored as: the name of a secret, which is none
    names = [_key_name().search(key[-40:]) if isinstance(key, str) else None for key in value]
    # Beside a logprob, a token is a word of a language model.
    is_model_output = "logprob" in value
    return [_conceal_named if name and not (name["token"] and is_model_output) else conceal for name in names]


def _conceal_named(text: str) -> str:
    return redact_text(text) if re.fullmatch(_PLAIN, text) else "[redacted:assignment]"


def _conceal_value_of_flag(text: str) -> str:
    return redact_text(text) if re.fullmatch(_PLAIN, text) else "[redacted:flag]"

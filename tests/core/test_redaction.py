"""What counts as a secret, what does not, and that nothing which does is ever stored."""

import hashlib
import importlib
import random
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec
import pytest
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import redaction
from holdfast.core.redaction import PATTERNS, redact, redact_json, redact_text

BASE62 = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits

# Secrets are made here rather than written down, so that no scanner takes this file for a leak.
chance = random.Random("holdfast")


def letters(length: int, alphabet: str = BASE62) -> str:
    return "".join(chance.choice(alphabet) for _ in range(length))


def key_block(kind: str, *, lines: int = 4) -> str:
    body = "\n".join(letters(64) for _ in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


JWT = ".".join(("eyJ" + "hbGciOiJIUzI1NiJ9", "eyJ" + "zdWIiOiIxMjM0In0", letters(43)))

# Secrets that are known by their own letters, by the name of the pattern that finds them.
SHAPES = {
    "pem": [
        key_block("RSA " + "PRIVATE KEY"),
        key_block("OPENSSH " + "PRIVATE KEY", lines=9),
        key_block("PRIVATE KEY"),
        key_block("EC " + "PRIVATE KEY").replace("\n", "\\n"),
        key_block("PGP " + "PRIVATE KEY BLOCK"),
        key_block("ENCRYPTED " + "PRIVATE KEY").replace("\n", " "),
    ],
    "jwt": [JWT, JWT.rpartition(".")[0]],
    "aws": ["AK" + "IA" + letters(16, UPPER), "AS" + "IA" + letters(16, UPPER)],
    "github": [*(f"gh{kind}_" + letters(36) for kind in "pousr"), "github_" + "pat_" + letters(82)],
    "gitlab": ["glpat" + "-" + letters(20), "gldt" + "-" + letters(20), "glagent" + "-" + letters(50)],
    "slack": [
        "xox" + "b-" + "-".join((letters(12, string.digits), letters(12, string.digits), letters(24))),
        "xox" + "p-" + "-".join((letters(12, string.digits), letters(32, HEX))),
        "xapp" + "-1-A" + letters(10, UPPER) + "-" + letters(64, HEX),
    ],
    "discord": [
        "MT" + letters(22) + "." + letters(6) + "." + letters(27),
        "Nz" + letters(24) + ".Y1b-_x." + letters(38),
    ],
    "anthropic": ["sk-" + "ant-api03-" + letters(93) + "-" + letters(6) + "AA"],
    "openai": [
        "sk-" + letters(20) + "T3Blbk" + "FJ" + letters(20),
        "sk-" + "proj-" + letters(20) + "T3Blbk" + "FJ" + letters(20),
    ],
    "google": ["AI" + "za" + letters(35), "ya" + "29." + letters(60), "GOC" + "SPX-" + letters(28)],
    "stripe": ["sk_" + "live_" + letters(24), "rk_" + "live_" + letters(24), "whsec" + "_" + letters(32)],
    "twilio": ["A" + "C" + letters(32, HEX), "S" + "K" + letters(32, HEX)],
    "sendgrid": ["SG" + "." + letters(22) + "." + letters(43)],
    "mailgun": ["key" + "-" + letters(32, LOWER)],
    "npm": ["npm" + "_" + letters(36)],
    "pypi": ["pypi" + "-AgEIcHlwaS5vcmc" + letters(80)],
    "gateway": ["hf_" + "gw_" + letters(43)],
    "huggingface": ["hf" + "_" + letters(34)],
    "age": ["AGE-" + "SECRET-KEY-1" + letters(58, UPPER)],
}

SHORT = "hunter" + "2"
ODD = "p@ss:w0rd!" + "#$%^*"
BASE64 = letters(39) + "/"

# Secrets that are known by what stands around them: the pattern, the text, and what must remain of it.
SURROUNDED = [
    ("telegram", "bot 110201543:{}", "AA" + letters(33)),
    ("azure", "AccountName=me;AccountKey={};EndpointSuffix=x", letters(86) + "=="),
    ("aws-assignment", "aws_secret_access_key = {}", BASE64),
    ("aws-assignment", 'AWS_SECRET_ACCESS_KEY="{}"', BASE64),
    ("aws-assignment", "aws_key: '{}'", BASE64),
    (
        "webhook",
        "https://hooks.slack.com/services/{}",
        "/".join(("T" + letters(8), "B" + letters(8), letters(24))),
    ),
    ("webhook", "https://discord.com/api/webhooks/{}", letters(18, string.digits) + "/" + letters(68)),
    (
        "webhook",
        "https://discordapp.com/api/v10/webhooks/{} now",
        letters(18, string.digits) + "/" + letters(68),
    ),
    ("url", "postgres://bob:{}@db.example.org:5432/main", SHORT),
    ("url", "redis://:{}@cache/0 is slow", SHORT),
    ("url", "amqp://bob:{}@host?x=1", "p@ss@" + SHORT),
    ("url", "s3://[redacted:aws]:{}@bucket", BASE64[:-1]),
    ("url", "clone https://bob:{}@git.example.org/a.git", letters(64, HEX)),
    ("cookie-line", "Cookie: {}", "sid=" + letters(20) + "; theme=dark"),
    ("cookie-line", "< Set-Cookie: {}\n< Date: today", "JSESSIONID=" + letters(20) + "; Path=/; HttpOnly"),
    ("cookie-line", "curl -H 'cookie: {}' https://example.org", "a=b"),
    ("cookie-line", "Cookie:\t{}", "session=" + letters(20)),
    ("bearer", "it sent Bearer {} again", letters(30)),
    ("flag", "deploy --token {} --now", letters(20)),
    ("flag", "mysql --user bob --password {}", SHORT),
    ("flag", 'run --api-key "{}"', "correct horse"),
    ("flag", "run --db-password '{}'", "swordfish"),
    ("assignment", "password={}", SHORT),
    ("assignment", "password={} user=bob", "letmein"),
    ("assignment", "PASSWORD: {}", ODD),
    ("assignment", 'API_KEY: "{}"', letters(12)),
    ("assignment", "export SECRET_KEY={}", letters(24)),
    ("assignment", "export DB_PASS={}\nls", "swordfish"),
    ("assignment", "https://example.org/?a=1&access_token={}&b=2", letters(12)),
    ("assignment", '{{"client_secret": "{}", "b": 1}}', "ab'c d"),
    ("assignment", r"{{\"refreshToken\":\"{}\",\"b\":1}}", letters(20)),
    ("assignment", "config['password'] = '{}'", "swordfish"),
    ("assignment", 'password: str = "{}"', "swordfish"),
    ("assignment", 'password := "{}"', r"sword\"fish"),
    ("assignment", "passphrase = `{}`", "correct horse battery staple"),
    ("assignment", "Authorization: Basic {}", "dXNl" + "cjpwYXNz"),
    ("bearer", "Authorization: Bearer {}", letters(20)),
    ("assignment", '-H "Authorization: token {}"', letters(20)),
    ("assignment", "'authorization': 'bearer {}'", letters(20)),
    ("assignment", "x-api-key: {}", letters(20)),
    ("assignment", "Server=db;Uid=sa;Pwd={};", "swordfish"),
    ("assignment", "login(password={})", SHORT),
    ("assignment", 'if token == "{}":', letters(20)),
    ("assignment", "credentials={}", letters(20)),
]

BENIGN = [
    "",
    "the password is wrong",
    "Password: ",
    "Password:",
    "Enter your password: then press return.",
    "a secret: never give up",
    "token = next(tokens)",
    "token = tokens[0]",
    "token: str = Depends(scheme2)",
    "token=token, secret=self.secret, api_key=settings.openai2.api_key",
    "login(password=pw, token=tok)",
    "password = getpass('Password: ')",
    'print("Password: "), print("done")',
    'input("token: ")',
    'api_key = os.environ["API_KEY"]',
    "client = Client(api_key=config.providers.v2.key)",
    "max_tokens=100, token_count: 53, tokens=53, token=53",
    "The token limit is 8192; total tokens: 12345",
    'if token == "function": return token != "("',
    "password=$PASSWORD --token $TOKEN",
    "export TOKEN=${GITHUB_TOKEN}",
    "PASSWORD=$(cat /run/secrets/password)",
    'curl -H "Authorization: Bearer $token" https://example.org',
    "Authorization: Bearer <token>",
    "Authorization: Basic auth is required",
    "Bearer authentication, bearer bonds and the Bearer of good news",
    "password: {{ password }}, token: '{token}', secret: '%s', api_key: \"<your-api-key>\"",
    'password: "********", secret: "..."',
    "password: required, token: optional, secret: null",
    "PWD=/home/bob/project1\nOLDPWD=/tmp",
    "arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db-a1B2c3",
    "private_key: /etc/ssl/private/site1.pem",
    "next_page_token=abc123def456 pageToken: abc123 eos_token: '</s>1' fence token: a1b2c3",
    "--token is needed; use --password to set one, --token-file x1y2z3",
    "the cookie: a small file",
    "cookies: yes",
    "550e8400-e29b-41d4-a716-446655440000",
    hashlib.sha1(b"a commit").hexdigest(),
    f"sha256:{hashlib.sha256(b'a file').hexdigest()}",
    "task_01j8zc3v5k7m9p2q4r6s8t0w1x run_01j8zc3v5k7m9p2q4r6s8t0w1y ckpt_01j8zc3v5k7m9p2q4r6s8t0w1z",
    "task-01j8zc3v5k7m9p2q4r6s8t0w1x disk-0123456789abcdef0123456789",
    "session_key=agent:main:main idempotency_key=8f14e45fceea167a5a36dedd4bea2543",
    "cache-key-8f14e45fceea167a5a36dedd4bea2543",
    "sk-learn-pipeline-with-a-long-name sk-spinner-three-bounce-delay",
    "3.14159265358979323846264338327950288419716939937510",
    "2024-05-06T07:08:09.123456Z 12:34:56 10:20",
    "https://example.org:8080/a/@scope/b?email=bob@example.org",
    "ssh://git@example.org:22/a.git git@example.org:a/b.git bob@example.org",
    "http://[::1]:8080/ user:name@host",
    "@pytest.fixture\n@app.get('/')",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ bob@laptop",
    "import holdfast.core.redaction.patterns_of_secrets",
    "v1.2.3.post4+local.5 module.submod.attribute_of_something_long",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "eyJ is how a header begins; eyJhbGciOiJIUzI1NiJ9 alone is not a token",
    "hf_transformers_model_configuration_loader npm_config_registry_of_the_whole_company",
    "class PasswordField(SecretStr): keyboard, monkey, turkey, author, organization",
]


SHAPE_CASES = [(name, secret) for name, secrets in SHAPES.items() for secret in secrets]
SECRETS = [secret for _, secret in SHAPE_CASES]


def numbered(names: Iterable[str]) -> list[str]:
    """Names for test cases, so that no report prints what is planted."""
    return [f"{name}-{number}" for number, name in enumerate(names)]


def marker(name: str) -> str:
    return f"[redacted:{name}]"


def strings_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings_in(key)
            yield from strings_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings_in(item)


@pytest.mark.parametrize(("name", "secret"), SHAPE_CASES, ids=numbered(name for name, _ in SHAPE_CASES))
@pytest.mark.parametrize(
    "sentence", ["{}", "use {} for it.", '"{}"', "a\n{}\nb", "x=({})", r"a\n{}", "é{}…", "/{}"]
)
def test_a_secret_with_a_shape_is_replaced_wherever_it_stands(name: str, secret: str, sentence: str) -> None:
    redacted = redact_text(sentence.format(secret))

    assert redacted == sentence.format(marker(name))


@pytest.mark.parametrize(
    ("name", "sentence", "secret"), SURROUNDED, ids=numbered(name for name, _, _ in SURROUNDED)
)
def test_a_secret_in_its_surroundings_is_replaced_and_they_stay(
    name: str, sentence: str, secret: str
) -> None:
    redacted = redact_text(sentence.format(secret))

    assert redacted == sentence.format(marker(name))


@pytest.mark.parametrize("kept_lines", range(1, 5))
def test_a_key_block_that_was_cut_short_is_replaced_to_its_last_letter(kept_lines: int) -> None:
    kept = key_block("PRIVATE KEY").split("\n")[: kept_lines + 1]

    for cut in (0, 1, 50, 60):
        text = "\n".join(kept)[: -cut or None]
        assert redact_text(f"it said {text}") == f"it said {marker('pem')}"
        assert redact_text(f"it said {text}… and more") == f"it said {marker('pem')}… and more"


@pytest.mark.parametrize("text", BENIGN)
def test_text_without_secrets_comes_back_as_the_same_object(text: str) -> None:
    redacted = redact_text(text)

    assert redacted is text


def test_every_pattern_has_a_name_of_its_own_a_reason_and_an_example() -> None:
    names = [pattern.name for pattern in PATTERNS]

    assert len(set(names)) == len(names)
    assert set(names) == {*SHAPES, *(name for name, _, _ in SURROUNDED)}
    assert all(pattern.finds for pattern in PATTERNS)


def test_the_name_of_a_pattern_is_not_itself_taken_for_the_name_of_a_secret() -> None:
    markers = " ".join(
        f'{marker(pattern.name)}: "x1y2z3" {marker(pattern.name)}=x1y2z3' for pattern in PATTERNS
    )

    assert redact_text(markers) is markers


# The oracle.

GUESSES_BY_ENTROPY = {"Base64 High Entropy String", "Hex High Entropy String"}
NO_SECRETS = {"Public IP (ipv4)"}


class Detector(Protocol):
    def analyze_string(self, string: str) -> Iterator[str]: ...


def findings(text: str) -> list[tuple[str, str]]:
    detectors: Mapping[str, Callable[[], Detector]] = get_mapping_from_secret_type_to_class()
    return [
        (kind, found)
        for kind, detector in detectors.items()
        if kind not in GUESSES_BY_ENTROPY | NO_SECRETS
        for line in text.split("\n")
        for found in detector().analyze_string(line)
    ]


CORPUS = "\n".join(
    [
        *(f"The {name} of the day is {secret}, they say." for name, secret in SHAPE_CASES),
        *(f'{name} = "{secret}"' for name, secret in SHAPE_CASES if name != "pem"),
        *(sentence.format(secret) for _, sentence, secret in SURROUNDED),
        *(
            f'{word} = "{letters(20)}"'
            for word in ("password", "db_password", "secret", "api_key", "private_key")
        ),
        "//registry.npmjs.org/:_auth" + f"Token=npm_{letters(36)}",
    ]
)


def test_detect_secrets_finds_secrets_of_many_kinds_in_the_corpus() -> None:
    kinds = {kind for kind, _ in findings(CORPUS)}

    assert len(kinds) >= 17


def test_detect_secrets_finds_nothing_once_the_corpus_is_redacted() -> None:
    assert findings(redact_text(CORPUS)) == []


# Structures.

NAMES = [
    "password", "passwd", "passphrase", "pass", "pwd", "db_pass", "user_password2", "secret", "client_secret",
    "secrets", "token", "access_token", "refresh_token", "bot-token", "id token", "api_key", "apikey",
    "api-key", "x-api-key", "api.key", "authorization", "proxy-authorization", "cookie", "set-cookie",
    "cookies", "private_key", "secret_key", "access_key", "signing_key", "account_key", "aws_key",
    "credentials",
]  # fmt: skip
STYLES: list[Callable[[str], str]] = [
    str,
    str.upper,
    str.title,
    lambda name: re.sub("[-_. ](.)", lambda match: match[1].upper(), name),
    lambda name: re.sub("[-_. ]", "", name),
    lambda name: "my_" + name,
]


@pytest.mark.parametrize("name", NAMES)
def test_the_value_of_a_key_that_names_a_secret_is_replaced_in_every_spelling(name: str) -> None:
    keys = {style(name) for style in STYLES} - {"my_token"}
    document = {key: "not known by its shape" for key in keys if key.lower() not in {"dbpass", "mypass"}}

    redacted = msgspec.json.decode(redact_json(msgspec.json.encode(document)))

    assert redacted == dict.fromkeys(document, marker("assignment"))


@pytest.mark.parametrize(
    "document",
    [
        {
            "password": None,
            "secret": True,
            "token": "",
            "api_key": 7,
            "credentials": {},
            "cookie": [],
            "pwd": " ",
        },
        {"max_tokens": 100, "token_count": "53", "tokens": "53", "token_type": "bearer", "tokenizer": "bpe"},
        {
            "password": "[redacted:assignment]",
            "token": "[redacted:jwt]",
            "secret": "${SECRET}",
            "pwd": "/work/main",
        },
        {"token_hint": "my dog", "secret-name": "db", "token_url": "https://example.org", "key": "value"},
        {"next_page_token": "abc123", "nextToken": "abc123", "fence_token": "abc123", "eos_token": "</s>"},
        {
            "dedup_key": "abc123",
            "session_key": "agent:main",
            "session_id": "abc123",
            "author": "Bob",
            "monkey": "x",
        },
        {"content": [{"token": " Hello", "logprob": -0.1}]},
        {
            "input_token": "Marker",
            "startingToken": "abc123",
            "text": "a token of love",
            "email": "bob@example.org",
        },
        {"compass": "north", "bypass": "none", "passed": "yes"},
    ],
)
def test_a_value_that_is_plainly_no_secret_stays(document: dict[str, object]) -> None:
    encoded = msgspec.json.encode(document)

    assert redact(document) is document
    assert redact_json(encoded) is encoded


def test_all_strings_below_a_key_that_names_a_secret_are_replaced() -> None:
    document = {"credentials": {"user": "bob", "keys": ["one", 2, None, {"three": "four"}]}, "user": "bob"}

    redacted = redact(document)

    hidden = marker("assignment")
    assert redacted == {
        "credentials": {"user": hidden, "keys": [hidden, 2, None, {"three": hidden}]},
        "user": "bob",
    }


@pytest.mark.parametrize("flag", ["--api-key", "--password", "-token", "--client-secret"])
def test_the_item_after_a_flag_that_names_a_secret_is_replaced(flag: str) -> None:
    command = ["sh", "-c", "x", flag, "hunter2hunter2", "--verbose"]

    assert redact(command) == ["sh", "-c", "x", flag, "[redacted:flag]", "--verbose"]
    assert b"hunter2" not in redact_json(msgspec.json.encode({"argv": command}))


def test_what_is_no_value_of_a_flag_stays() -> None:
    for command in (["x", "--max-tokens", "100"], ["x", "--token", "--verbose"], ["--password"], ["-p", "y"]):
        assert redact(command) is command


def test_a_logprob_excuses_a_token_but_no_password() -> None:
    document = dict.fromkeys(("token", "password", "logprob"), "the")

    assert redact(document) == {**document, "password": marker("assignment")}


def test_what_is_not_secret_keeps_its_order_and_its_numbers() -> None:
    before = (
        b'{"z":1.0,"token":"x","a":[1e300,-0.0,12345678901234567890,"\xc3\xa9\\n\\u0001"],"b":{"y":1,"x":2}}'
    )

    redacted = redact_json(before)

    assert redacted == before.replace(b'"x",', b'"[redacted:assignment]",')


def test_secrets_used_as_keys_are_replaced_and_no_entry_is_lost() -> None:
    first, second, third = SHAPES["github"][:3]
    document = {first: 1, "[redacted:github]": 2, second: 3, "other": 4, third: 5}

    redacted = redact(document)

    assert redacted == {
        "[redacted:github]#2": 1,
        "[redacted:github]": 2,
        "[redacted:github]#3": 3,
        "other": 4,
        "[redacted:github]#4": 5,
    }


def test_tuples_stay_tuples_and_what_is_not_json_is_left_alone() -> None:
    secret = SHAPES["github"][0]
    stranger = object()
    value = (secret, [stranger], {1: secret}, b"bytes")

    redacted = redact(value)

    assert redacted == (marker("github"), [stranger], {1: marker("github")}, b"bytes")


def test_a_part_without_secrets_is_not_copied() -> None:
    clean = {"a": ["b", {"c": "d"}]}

    redacted = redact([clean, SHAPES["github"][0]])

    assert isinstance(redacted, list)
    assert redacted[0] is clean


def test_clean_json_comes_back_as_the_same_bytes() -> None:
    encoded = msgspec.json.encode({"texts": BENIGN, "number": 1, "none": None})

    assert redact_json(encoded) is encoded


def test_a_secret_behind_escapes_that_other_encoders_write_is_found() -> None:
    github = SHAPES["github"][0]
    escaped = b'["' + b"".join(b"\\u%04x" % ord(letter) for letter in github) + b'"]'

    assert redact_json(escaped) == b'["[redacted:github]"]'


def test_deeply_nested_json_is_redacted() -> None:
    depth = 300
    encoded = b'[{"a":' * depth + b'{"password":"x"}' + b"}]" * depth

    assert redact_json(encoded) == encoded.replace(b'"x"', b'"[redacted:assignment]"')


# Properties.

ODD_LETTERS = [
    "",
    " ",
    '"',
    "\\",
    "\n",
    "\r\n",
    "\t",
    "\x00",
    "\x1f",
    "\x7f",
    "é",
    "\u2028",
    "😀",
    "=",
    "/",
    "'",
    ",",
]
BEGINNINGS = r"""sk- eyJ ghp_ AKIA SG. :// : @ :x@ AA password token -- --token = := ' " ( [ ] { } a 1 A _ - .
    -----BEGIN -----END PRIVATE KEY----- Bearer Basic Authorization: Cookie: api_ key pass wd next_ \n \" """
FRAGMENTS = [
    *ODD_LETTERS,
    *SECRETS,
    *(sentence.format(secret) for _, sentence, secret in SURROUNDED),
    *BENIGN,
    *(marker(pattern.name) for pattern in PATTERNS),
    *BEGINNINGS.split(),
]

planted = st.builds(
    lambda before, odd, secret, even, after: before + odd + secret + even + after,
    st.text(max_size=5),
    st.sampled_from([odd for odd in ODD_LETTERS if odd]),
    st.sampled_from(SECRETS),
    st.sampled_from([odd for odd in ODD_LETTERS if odd]),
    st.text(max_size=5),
)
mixed = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=8).map("".join)


def documents(texts: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    return st.recursive(
        texts | st.none() | st.booleans() | st.integers(-(2**53), 2**53),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=8,
    )


@given(documents(planted))
def test_no_planted_secret_survives_in_json(document: object) -> None:
    redacted = msgspec.json.decode(redact_json(msgspec.json.encode(document)))

    assert not [secret for text in strings_in(redacted) for secret in SECRETS if secret in text]


@given(documents(mixed | st.sampled_from(NAMES)))
def test_redacting_the_encoded_document_equals_redacting_the_document(document: object) -> None:
    assert msgspec.json.decode(redact_json(msgspec.json.encode(document))) == redact(document)


@given(mixed)
def test_looking_only_where_there_is_a_hint_misses_nothing(text: str) -> None:
    thorough = text
    for pattern in PATTERNS:
        thorough = pattern.redact(thorough)

    assert redact_text(text) == thorough


@given(mixed)
def test_redacting_text_twice_changes_nothing_more(text: str) -> None:
    once = redact_text(text)

    assert redact_text(once) is once


@given(documents(mixed | st.sampled_from(NAMES)))
def test_redacting_json_twice_changes_nothing_more(document: object) -> None:
    once = redact_json(msgspec.json.encode(document))

    assert redact_json(once) is once


@given(
    st.text(alphabet=string.ascii_lowercase + " .,;\n", max_size=200).filter(lambda text: "token" not in text)
)
def test_lower_case_prose_is_never_touched(text: str) -> None:
    assert redact_text(text) is text


# Hostile input.

BEGIN = "-----BEGIN " + "PRIVATE KEY-----"
HOSTILE = [
    "eyJ", "_eyJ", "eyJaaaaaaaa.", "sk-", "ghp_", "AKIA", "AA", "12345678:AA", "M.", "SG.", "M" * 24 + ".",
    "://", "://a:", "://a:b@", ":@", "@", "password=", "password=\\", 'password="', 'password="\\',
    "password=$(", "password=/a", "password: token ", "token=a.", "next_token=", "api_key", "aws_access_key=",
    " --password ", "--", "--a-", "Cookie: a", "Bearer ", "authorization: basic ", "-----END ",
    BEGIN, BEGIN + "\n", BEGIN + "\\",
    "\n", "\\", " ", "{", "\x00", "é password: ",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_long_run_of_beginnings_is_redacted_as_readily_as_prose(unit: str) -> None:
    text = "token=" + SHORT + " " + unit * (100_000 // len(unit)) + " token=" + SHORT

    assert SHORT not in redact_text(text)


def unlimited_repeats(regex: re.Pattern[str]) -> Iterator[str]:
    """The operators of a compiled pattern that repeat without a limit; ATOMIC where one never gives back.

    An atomic group around a repeat is a possessive repeat; interpreters before 3.11.5 get only this one right
    when what is repeated is a group.
    """
    parser = importlib.import_module("re._parser")
    pending = [(parser.parse(regex.pattern, regex.flags & ~re.UNICODE), False)]
    while pending:
        node, is_atomic = pending.pop()
        if isinstance(node, parser.SubPattern):
            is_atomic = is_atomic and len(node) == 1
            for operator, argument in node:
                if str(operator).endswith("REPEAT") and argument[1] == parser.MAXREPEAT:
                    yield "ATOMIC" if is_atomic or str(operator) == "POSSESSIVE_REPEAT" else str(operator)
                pending.append((argument, str(operator) == "ATOMIC_GROUP"))
        elif isinstance(node, list | tuple):
            pending.extend((inner, False) for inner in node)


def test_no_run_without_a_limit_is_ever_given_back() -> None:
    compiled = [value for value in vars(redaction).values() if isinstance(value, re.Pattern)]
    compiled += [pattern.regex for pattern in PATTERNS]
    compiled += [redaction._key_name(), redaction._variable()]

    assert {repeat for regex in compiled for repeat in unlimited_repeats(regex)} == {"ATOMIC"}

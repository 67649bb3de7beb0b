"""What counts as a secret, what does not, and that nothing which does is ever stored."""

import hashlib
import importlib
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec
import pytest
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import secret_shapes
from holdfast.core.redaction import (
    PATTERNS,
    SecretPattern,
    holds_secret,
    redact,
    redact_json,
    redact_name,
    redact_text,
)
from holdfast.core.secret_scanner import has_hint
from tests.canaries import SURROUNDED
from tests.fake_secrets import NAMES, SECRETS, SHAPE_CASES, SHAPES, SHORT, key_block, letters

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
    "the password: it is on the desk",
    "Enter password: hunter",
    "Forgot your password: click here",
    "password: required\npassword: optional",
    "Password: wrong\npassword: invalid\npasswd: unchanged",
    "class Login:\n    password: str\n    pwd: SecretStr\n    passphrase: Any\n    token: Token",
    "interface Login {\n  password: string;\n  passwd: text\n}",
    "password: settings.password\npassword: db_password\npassword: getpass()\npassword: args[0]",
    "password: hunter beats password: fisher",
    "docker run -u 1000:1000 image; sudo -u bob:staff ls; python -u a:b; id -u\ncurl -s https://example.org",
    "curl -u $USER:$PASSWORD https://example.org -o a:b.txt",
    "curl -s https://example.org\nrsync -u host:folder .",
    "sshpass -p $PASSWORD ssh bob@example.org; sshpass -e ssh",
    "https://example.org/list?key=session&sort=key; ?key=12345678901234; a?key=value",
    "hvs.example gsk_ xai-model-name r8_ dapi dapinames shpat_ tskey-auth lin_api_reference ntn_ secret_name",
    "sites.SomeMethodNameThatIs24LongX1 s.someAttributeOfAnObject1() s.aB3.cD4 os.Abcdefghijklmnopqrstuvw1",
    "sig=short&sig=1 signature=abcdefghijklmnopqrstuvwxyz design=abcdefghijklmnopqrstuvwxyz",
    "https://0123456789abcdef0123456789abcdef.example.org/1 git+https://github.com/a/b@v1",
    "PASS: test_1\npass: 12, fail: 3\npass=12 fail=3\npass: all\na mountain pass: 2000 m",
    "pass=False pw=pw; boarding pass: A12; compass = north; def pass_through(): pass",
    "use --password instead; --password must be set; --password PASSWORD; --password string",
    "  --password    The password",
    "login and password are needed; the default login is bob, password as before",
    "Enter the password:\n  then press return\nPassword:\n  required\npassword:\nhunter",
    "credentials:\n  user: bob\nsecrets:\n  - name: a1\n",
    "<b>password</b> <label>Password</label> <token>the</token> <password></password> List<Password> a</b>",
    "password: 8 characters; Password: 1234 tries left",
    "curl --user-agent a:b -o out:1 -A x:y https://example.org:8080/; curl -u bob https://example.org:8080",
    "mysql -p shop; mysql -u root -p; docker login; docker run -p 80:80; the mysql - or mysqldump -p format",
    "sshpass -e ssh -p 2222 host",
    "https://git@example.org/a https://some-user-with-a-long-name-2024@example.org/",
    "/errors?code=internal-server-error&code=404 ?code=short1",
    r"C:\task-01j8zc3v5k7m9p2q4r6s8t0w1x 100%disk-0123456789abcdef0123456789",
    "[33mask-0123456789abcdef0123456789",
]


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


@pytest.mark.parametrize(
    "sentence",
    [
        "{}", "use {} for it.", '"{}"', "a\n{}\nb", "x=({})", r"a\n{}", "é{}…", "/{}", r"\u201c{}",
        r"\u00a0{}", r"\xe2\x80\x9c{}", r"\f{}", r"\v{}", "a%20{}", "a%3D{}", "\x1b[31m{}", r"\x1b[31m{}",
        r"\033[0;1m{}",
        r"\u001b[1;31m{}", "\x1b[38;5;196m{}", "\x1b[m{}",
    ],
)  # fmt: skip
def test_a_secret_with_a_shape_is_replaced_wherever_it_stands(sentence: str) -> None:
    redacted = [redact_text(sentence.format(secret)) for _, secret in SHAPE_CASES]

    assert redacted == [sentence.format(marker(name)) for name, _ in SHAPE_CASES]


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
            "pwd": "/srv/app",
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
        {"compass": "north", "bypass": "none", "passed": "yes", "boarding pass": "A1", "pwned": "no"},
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


@pytest.mark.parametrize(
    "command",
    [["curl", "-u", "bob:{}", "https://example.org"], ["/usr/bin/curl", "-s", "--user", "bob:{}"],
     ["sshpass", "-p", "{}", "ssh", "bob@example.org"]],
)  # fmt: skip
def test_a_password_among_the_arguments_of_a_command_is_replaced(command: list[str]) -> None:
    planted_command = [one.format("swordfish") for one in command]

    redacted = redact(planted_command)

    assert redacted == [("[redacted:flag]" if "{}" in one else one) for one in command]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["curl", "-su", "bob:x"], ["curl", "-su", "[redacted:flag]"]),
        (["curl", "-u", "corp/bob:x"], ["curl", "-u", "[redacted:flag]"]),
        (["curl", "-u", "my user:x"], ["curl", "-u", "[redacted:flag]"]),
        (["curl", "--user=bob:x", "h"], ["curl", "--user=bob:[redacted:flag]", "h"]),
        (["curl", "-sSubob:x"], ["curl", "-sSubob:[redacted:flag]"]),
        (["sshpass", "-px", "ssh"], ["sshpass", "-p[redacted:flag]", "ssh"]),
        (["mysql", "-u", "root", "-px", "shop"], ["mysql", "-u", "root", "-p[redacted:flag]", "shop"]),
        (
            ["docker", "login", "-u", "bob", "-p", "x"],
            ["docker", "login", "-u", "bob", "-p", "[redacted:flag]"],
        ),
        (["x", "--pw", "x"], ["x", "--pw", "[redacted:flag]"]),
    ],
)
def test_a_password_is_replaced_as_each_program_takes_it(command: list[str], shown: list[str]) -> None:
    assert redact(command) == shown
    assert redact_json(msgspec.json.encode(command)) == msgspec.json.encode(shown)


@pytest.mark.parametrize("word", ["pass", "PASS", "pw", "password:\n  a", "credentials"])
def test_a_name_without_a_secret_hides_none_that_follows(word: str) -> None:
    for text in (
        f"{word}: token={SHORT}",
        f"{word}:\n  password: |\n    {SHORT}",
        f"{word}:\n  password:\n    {SHORT}",
    ):
        assert SHORT not in redact_text(text)


def test_a_key_block_in_a_list_of_lines_is_replaced() -> None:
    block = key_block("RSA " + "PRIVATE KEY").split("\n")

    redacted = redact(["before", *block, "after"])

    assert redacted == ["before", *[marker("pem")] * 5, block[-1], "after"]


def test_a_user_of_curl_that_is_itself_a_secret_is_not_shown() -> None:
    github = SHAPES["github"][0]

    assert redact(["curl", f"-u{github}:x"]) == ["curl", "[redacted:flag]"]


@pytest.mark.parametrize("flag", ["--api-key", "--password", "-token", "--client-secret"])
def test_the_item_after_a_flag_that_names_a_secret_is_replaced(flag: str) -> None:
    command = ["sh", "-c", "x", flag, "hunter2hunter2", "--verbose"]

    assert redact(command) == ["sh", "-c", "x", flag, "[redacted:flag]", "--verbose"]
    assert b"hunter2" not in redact_json(msgspec.json.encode({"argv": command}))


def test_what_is_no_value_of_a_flag_stays() -> None:
    for command in (
        ["x", "--max-tokens", "100"],
        ["x", "--token", "--verbose"],
        ["--password"],
        ["-p", "y"],
        ["docker", "-u", "1:1"],
        ["curl", "-u", "bob"],
        ["ssh", "-p", "22"],
        ["mysql", "-p", "shop"],
        ["mysql", "shop", "--port=1"],
        ["docker", "run", "-p", "80:80"],
        ["curl", "--user-agent", "a:b", "-o", "a:b", "-uhttps://example.org"],
    ):
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
    -----BEGIN -----END PRIVATE KEY----- Bearer Basic Authorization: Cookie: api_ key pass wd next_ \n \"
    pw : | >- curl -u -su mysql docker login -p sshpass < > </ machine login code= ? \u201c %20 [31m """
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
        thorough = pattern.regex.sub(pattern._replacement, thorough)

    assert redact_text(text) == thorough


@given(st.lists(mixed, max_size=40))
def test_redacting_texts_together_equals_redacting_each(texts: list[str]) -> None:
    # Each in a list of its own: beside each other they could be a flag and its value.
    assert redact([[text] for text in texts]) == [[redact_text(text)] for text in texts]


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
    "\n", "\\", " ", "{", "\x00", "é password: ", "password=password=", "Bearer Bearer ", "Bearer a",
    "a", "_",
    "-", ".", "curl -u ", "-u a:b ", "curl -u 'a:", "sshpass -p '", "password: hunter\n", "?key=a", "&sig=a",
    "password: |\n ", "password:\n a", "password: |\n a\n", "machine a login ", "<password>", "<a",
    "mysql -a ", "docker login a ", "curl -su", "--user", "sshpass -v ", "://aaaaaaaaaaaaaaaaaaaa1",
    "?code=a", "pass=", "pw: ", "pw:",
    "s.aB3", "hvs.", "tskey-", "dapi", "secret_", "--aaaatoken", '"token":', r"\"token\":\"",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_long_run_of_beginnings_is_redacted_as_readily_as_prose(unit: str) -> None:
    text = "token=" + SHORT + " " + unit * (100_000 // len(unit)) + " token=" + SHORT

    assert SHORT not in redact_text(text)


SOURCES = {
    "_ATTRIBUTE", "_ESCAPED_END", "_FLAG_WORD", "_KEY_NAME", "_LINE_BREAK", "_PLAIN", "_QUOTED_END",
    "_RANDOM", "_SETTING", "_SETTING_END", "_SETTING_WORD", "_VARIABLE", "_WORD",
}  # fmt: skip


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
    sources = [value for name, value in vars(secret_shapes).items() if name in SOURCES]
    compiled = [re.compile(source, re.VERBOSE) for source in sources]
    compiled += [pattern.regex for pattern in PATTERNS]

    assert len(compiled) == len(SOURCES) + len(PATTERNS)
    assert {repeat for regex in compiled for repeat in unlimited_repeats(regex)} == {"ATOMIC"}


# How much is looked at. Patterns and searches are counted, because a time would only tell about the machine.

LENGTH = 200_000


class Counted:
    """How often patterns were applied, and to how many characters."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.searches = self.chars = 0
        redact_with = SecretPattern.redact

        def counting_redact(pattern: SecretPattern, text: str) -> str:
            self._count(text)
            return redact_with(pattern, text)

        def counting_has_hint(encoded: bytes) -> bool:
            self._count(encoded)
            return has_hint(encoded)

        monkeypatch.setattr(SecretPattern, "redact", counting_redact)
        monkeypatch.setattr("holdfast.core.redaction.has_hint", counting_has_hint)

    def _count(self, text: str | bytes) -> None:
        self.searches += 1
        self.chars += len(text)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@pytest.mark.parametrize(
    "text",
    ["@{}", "a={}", "password{}", "token={}", "://a:b@{}", "sk-{}", "--token {}", "Bearer {}", "eyJ{}"],
)
def test_many_short_strings_are_searched_together(counted: Counted, text: str) -> None:
    texts = [text.format(number) for number in range(LENGTH // 8)]
    length = sum(map(len, texts))

    redact([*texts, "token=" + SHORT])

    assert counted.searches < length / 100
    assert counted.chars < len(PATTERNS) * length


def test_strings_that_spell_every_pattern_cost_no_more_than_their_length(counted: Counted) -> None:
    texts = [f"{need}{number}" for number in range(100) for one in PATTERNS for need in one.needs]
    length = sum(map(len, texts))

    redact(texts)

    # What spans lines is applied to each text that spells it.
    assert counted.searches < length / 10
    assert counted.chars < 2 * len(PATTERNS) * length


@pytest.mark.parametrize("unit", ["password=a1 ", "@", "://a:b@ ", "a=b ", "Bearer a1b2c3d4 "])
def test_one_long_line_of_hints_is_searched_once_by_each_pattern(counted: Counted, unit: str) -> None:
    redact_text(unit * (LENGTH // len(unit)))

    assert counted.searches <= len(PATTERNS) + 2
    assert counted.chars <= (len(PATTERNS) + 2) * LENGTH


def test_a_text_without_hints_is_searched_once(counted: Counted) -> None:
    redact_text("a line without any\n" * 1000)

    assert counted.searches == 1


@pytest.mark.parametrize("place", [0, 1, 100, 65_400, 65_530, 65_536, 65_540, 131_072, 199_000])
@pytest.mark.parametrize("filler", [".", "x ", "é", "a.b/c "])
def test_a_secret_in_a_line_of_any_length_is_found_at_every_place(place: int, filler: str) -> None:
    before = (filler * place)[:place]
    secret = " token=" + SHORT + ' password="' + "s" * 70_000 + '" '
    line = before + secret + filler * 1000

    assert (
        redact_text(line)
        == before + ' token=[redacted:assignment] password="[redacted:assignment]" ' + filler * 1000
    )


@given(mixed, st.integers(1, 3))
def test_searching_a_line_in_windows_finds_the_same(text: str, number: int) -> None:
    line = (text + " ") * number
    for pattern in PATTERNS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(secret_shapes, "_WINDOW", 50)
            in_windows = pattern.redact(line)
        assert in_windows == pattern.regex.sub(pattern._replacement, line)


# Names.


@pytest.mark.parametrize(
    "secret", [secret for _, secret in SHAPE_CASES], ids=numbered(name for name, _ in SHAPE_CASES)
)
def test_names_that_differ_in_a_secret_alone_stay_two_names(secret: str) -> None:
    middle = next(place for place in range(len(secret) * 2 // 3, len(secret)) if secret[place].isalnum())
    digit = "7" if secret[middle] != "7" else "8"
    other = secret[:middle] + digit + secret[middle + 1 :]
    names = [redact_name(f"deploy {one}") for one in (secret, other)]

    assert len(set(names)) == 2
    assert all(re.fullmatch(r"\[redacted:name\]~[0-9a-f]{16}", one) for one in names)


@pytest.mark.parametrize("text", [*BENIGN, "a~01234567", "[redacted:github]"])
def test_a_name_without_a_secret_comes_back_as_the_same_object(text: str) -> None:
    assert redact_name(text) is text


@given(mixed | planted)
def test_a_redacted_name_is_short_and_is_not_changed_again(text: str) -> None:
    name = redact_name(text)

    assert redact_name(name) is name
    assert name is text or len(name) <= 200


@given(planted)
def test_no_planted_secret_survives_in_a_name(text: str) -> None:
    assert not [secret for secret in SECRETS if secret in redact_name(text)]


def test_the_hash_of_a_name_does_not_hide_another_secret() -> None:
    github = SHAPES["github"][0]

    name = redact_name(f"{redact_name(github)} {github}~01234567")

    assert github not in name


def test_a_number_is_a_secret_where_a_password_stands_and_a_count_where_a_token_does() -> None:
    value = {"password": 4711, "tokens": 12, "token": 3, "is_secret": True, "a": [{"pin_secret": 70001}]}

    assert redact(value) == {
        "password": "[redacted:assignment]",
        "tokens": 12,
        "token": 3,
        "is_secret": True,
        "a": [{"pin_secret": "[redacted:assignment]"}],
    }
    assert holds_secret(msgspec.json.encode({"password": 4711}))
